//! Whether a client may do what it asks for. Every handler asks here and nowhere else; what each API
//! must be allowed is Kafka's table, and stands with the API.
//!
//! Who the client is comes from its connection, what it may from the ACLs as of the published tick: an
//! ACL that was answered is in force for whatever is looked at afterwards. Without an authorizer
//! everything is allowed, and asking costs nothing.

use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;
use tidemark_audit::{Event, Kind, Outcome};
use tidemark_authorizer::{Acls, Action, CLUSTER_NAME, Operation, ResourceType, Rules};
use tracing::debug;

use crate::audit::origin_of;
use crate::handlers::Cx;

/// What somebody may be allowed something on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource<'a> {
    Cluster,
    Topic(&'a str),
    Group(&'a str),
    TransactionalId(&'a str),
}

impl<'a> Resource<'a> {
    fn parts(self) -> (ResourceType, &'a str) {
        match self {
            Resource::Cluster => (ResourceType::Cluster, CLUSTER_NAME),
            Resource::Topic(name) => (ResourceType::Topic, name),
            Resource::Group(id) => (ResourceType::Group, id),
            Resource::TransactionalId(id) => (ResourceType::TransactionalId, id),
        }
    }
}

/// Why somebody's right is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// It is to be done: without the right the request is refused.
    Access,
    /// To leave out of an answer what may not be seen, or where another right will do. Nobody is
    /// refused anything by it.
    Filter,
}

/// What one client may do, as of one published tick.
pub(crate) struct Rights<'a> {
    cx: &'a Cx,
    /// `None` without an authorizer.
    judge: Option<(&'a Rules, Arc<Acls>)>,
}

impl Cx {
    pub(crate) fn rights(&self) -> Rights<'_> {
        let rules = self.shared.settings.authorizer.as_ref();
        Rights {
            cx: self,
            judge: rules.map(|rules| (rules, self.shared.read().image.acls().clone())),
        }
    }

    /// True if the client may do this. Who asks more than once takes [`Cx::rights`].
    pub(crate) fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.rights().may(operation, resource)
    }
}

impl Rights<'_> {
    /// True if there is an authorizer.
    pub(crate) fn are_judged(&self) -> bool {
        self.judge.is_some()
    }

    /// True if the client may do this, which it wants to.
    pub(crate) fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.decide(operation, resource, Purpose::Access)
    }

    /// True if the client might do this: nothing is refused by it.
    pub(crate) fn might(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.decide(operation, resource, Purpose::Filter)
    }

    /// Every decision goes through here.
    fn decide(&self, operation: Operation, resource: Resource<'_>, purpose: Purpose) -> bool {
        let Some((rules, acls)) = &self.judge else {
            return true;
        };
        let connection = &self.cx.connection;
        let (resource_type, name) = resource.parts();
        let verdict = rules.decide(
            acls,
            &Action {
                principal: &connection.principal,
                host: connection.peer.ip(),
                operation,
                resource_type,
                name,
            },
        );
        self.tell(
            operation,
            resource_type,
            name,
            verdict.is_allowed(),
            purpose,
        )
    }

    /// True if the client may do this to some topic, whatever its name.
    pub(crate) fn may_to_some_topic(&self, operation: Operation) -> bool {
        let Some((rules, acls)) = &self.judge else {
            return true;
        };
        let connection = &self.cx.connection;
        let resource_type = ResourceType::Topic;
        let (principal, host) = (&*connection.principal, connection.peer.ip());
        let allowed = rules.may_somewhere(acls, principal, host, operation, resource_type);
        self.tell(operation, resource_type, "some", allowed, Purpose::Access)
    }

    fn tell(
        &self,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
        allowed: bool,
        purpose: Purpose,
    ) -> bool {
        if purpose == Purpose::Access {
            self.audit(operation, resource_type, name, allowed);
        }
        if !allowed && purpose == Purpose::Access {
            let connection = &self.cx.connection;
            debug!(
                "{:?} from {} may not {operation} {resource_type} {name:?}, asked for by {}",
                &*connection.principal,
                connection.peer.ip(),
                self.cx.header.api_key,
            );
        }
        allowed
    }

    /// What is refused is told, and once in a while what is allowed, but for looking at things.
    fn audit(&self, operation: Operation, resource_type: ResourceType, name: &str, allowed: bool) {
        let audit = &self.cx.shared.audit;
        if !audit.is_on() {
            return;
        }
        let event = |outcome| {
            Event::new(Kind::Access)
                .outcome(outcome)
                .of(&origin_of(self.cx))
                .api(self.cx.header.api_key.name())
                .operation(operation.to_string())
                .resource(resource_type.to_string(), name)
        };
        if !allowed {
            audit.record(|| event(Outcome::Denied));
            return;
        }
        if matches!(operation, Operation::Describe | Operation::DescribeConfigs) {
            return;
        }
        let connection = &self.cx.connection;
        let key = (
            &*connection.principal,
            connection.peer.ip(),
            operation.code(),
            resource_type.code(),
            name,
        );
        audit.record_once(key, || event(Outcome::Allowed));
    }

    /// Which of a request's topics the client may not do this to.
    pub(crate) fn forbidden<'n>(
        &self,
        operation: Operation,
        names: impl Iterator<Item = &'n StrBytes>,
    ) -> Forbidden {
        let forbids = |name: &StrBytes| !self.may(operation, Resource::Topic(name));
        Forbidden(self.are_judged().then(|| names.map(forbids).collect()))
    }

    /// Which of these the client may do, as Kafka's bit field of operations (KIP-430).
    pub(crate) fn operations(&self, resource: Resource<'_>, of: &[Operation]) -> i32 {
        let might = of
            .iter()
            .filter(|operation| self.might(**operation, resource));
        might.fold(0, |field, operation| field | 1 << operation.code())
    }
}

/// Topics of a request that are not to be touched, by their place in it. `None`: there are none.
pub(crate) struct Forbidden(Option<Vec<bool>>);

impl Forbidden {
    pub(crate) fn has(&self, nth: usize) -> bool {
        let all = self.0.as_ref();
        all.is_some_and(|all| all.get(nth).copied().unwrap_or(true))
    }

    pub(crate) fn any(&self) -> bool {
        self.0.as_ref().is_some_and(|all| all.contains(&true))
    }

    /// What is left of the request's topics.
    pub(crate) fn others<'t, T>(&self, topics: &'t [T]) -> impl Iterator<Item = &'t T> {
        let all = topics.iter().enumerate();
        all.filter(|(nth, _)| !self.has(*nth))
            .map(|(_, topic)| topic)
    }
}
