//! ACLs and filters as the three APIs about them write them: numbers, of which 0 means nothing, 1 any,
//! and those that are not known mean nothing either.

use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;
use tidemark_authorizer::{
    AclFilter, Operation, PatternFilter, PatternType, Permission, ResourceType,
};

/// The number that Kafka's clients refuse to send. A request with it is none: its connection is closed,
/// as Kafka closes it.
pub(crate) const NOTHING: i8 = 0;
/// Any one. In a filter only.
pub(crate) const ANY: i8 = 1;
/// Any pattern that a name fits. In a filter only.
pub(crate) const MATCH: i8 = 2;

/// A filter's fields on the wire.
pub(crate) struct WireFilter<'a> {
    pub(crate) resource_type: i8,
    pub(crate) name: Option<&'a StrBytes>,
    pub(crate) pattern_type: i8,
    pub(crate) principal: Option<&'a StrBytes>,
    pub(crate) host: Option<&'a StrBytes>,
    pub(crate) operation: i8,
    pub(crate) permission: i8,
}

impl WireFilter<'_> {
    pub(crate) fn has_nothing(&self) -> bool {
        [
            self.resource_type,
            self.pattern_type,
            self.operation,
            self.permission,
        ]
        .contains(&NOTHING)
    }

    /// What is meant; `None` where a number means nothing that is known.
    pub(crate) fn meant(&self) -> Option<AclFilter> {
        let text = |text: Option<&StrBytes>| text.map(|text| Arc::from(&**text));
        Some(AclFilter {
            resource_type: of(self.resource_type, ResourceType::from_code)?,
            name: text(self.name),
            pattern: match self.pattern_type {
                ANY => PatternFilter::Any,
                MATCH => PatternFilter::Match,
                code => PatternFilter::Of(PatternType::from_code(u8::try_from(code).ok()?)?),
            },
            principal: text(self.principal),
            host: text(self.host),
            operation: of(self.operation, Operation::from_code)?,
            permission: of(self.permission, Permission::from_code)?,
        })
    }
}

fn of<T>(code: i8, from_code: impl Fn(u8) -> Option<T>) -> Option<Option<T>> {
    match code {
        ANY => Some(None),
        code => from_code(u8::try_from(code).ok()?).map(Some),
    }
}

/// A number in a response.
pub(crate) fn wire(code: u8) -> i8 {
    i8::try_from(code).expect("Kafka's numbers are small")
}
