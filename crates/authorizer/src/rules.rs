use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::acls::Acls;
use crate::index::Said;
use crate::words::{Operation, ResourceType};

/// The principal of an ACL that is about everybody.
pub const ANY_PRINCIPAL: &str = "User:*";

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// `User:NAME`.
    pub principal: &'a str,
    pub host: IpAddr,
    pub operation: Operation,
    pub resource_type: ResourceType,
    pub name: &'a str,
}

/// Why an action is allowed or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    SuperUser,
    AllowedByAcl,
    DeniedByAcl,
    /// ACLs speak of the resource, and none lets this principal do this.
    NotAllowed,
    /// No ACL speaks of the resource: what `allow.everyone.if.no.acl.found` says.
    NoAcl {
        allowed: bool,
    },
}

impl Verdict {
    pub const fn is_allowed(self) -> bool {
        matches!(
            self,
            Verdict::SuperUser | Verdict::AllowedByAcl | Verdict::NoAcl { allowed: true }
        )
    }
}

/// What a broker is set to, beside its ACLs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// `super.users`: they may do everything, whatever the ACLs say.
    pub super_users: BTreeSet<String>,
    pub allow_everyone_if_no_acl_found: bool,
}

impl Rules {
    /// Super users may; then whatever denies wins, then whatever allows; and what nothing allows is
    /// not allowed, unless no ACL of anybody is about the resource and the setting says otherwise.
    pub fn decide(&self, acls: &Acls, action: &Action<'_>) -> Verdict {
        let Action {
            principal,
            host,
            operation,
            resource_type,
            name,
        } = *action;
        if self.super_users.contains(principal) {
            return Verdict::SuperUser;
        }
        let host = host.to_canonical();
        let own = acls.say(principal, host, operation, resource_type, name);
        if own == Said::Denied {
            return Verdict::DeniedByAcl;
        }
        match acls.say(ANY_PRINCIPAL, host, operation, resource_type, name) {
            Said::Denied => Verdict::DeniedByAcl,
            of_all if of_all == Said::Allowed || own == Said::Allowed => Verdict::AllowedByAcl,
            // Whether anybody has an ACL there matters to this setting only.
            _ if self.allow_everyone_if_no_acl_found => match acls.speaks_of(resource_type, name) {
                true => Verdict::NotAllowed,
                false => Verdict::NoAcl { allowed: true },
            },
            _ => Verdict::NotAllowed,
        }
    }

    /// Whether a principal may do something to some resource of a type, whatever its name: Kafka's
    /// authorizeByResourceType, with its look at one name that nobody has.
    pub fn may_somewhere(
        &self,
        acls: &Acls,
        principal: &str,
        host: IpAddr,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        let action = Action {
            principal,
            host,
            operation,
            resource_type,
            name: "hardcode",
        };
        let host = host.to_canonical();
        self.decide(acls, &action).is_allowed()
            || acls.allow_some([principal, ANY_PRINCIPAL], host, operation, resource_type)
    }
}

/// The principals of `super.users`, which a semicolon separates: names in certificates have commas. The
/// error is the part that is no `TYPE:NAME`.
pub fn parse_super_users(text: &str) -> Result<BTreeSet<String>, String> {
    let users = text
        .split(';')
        .map(str::trim)
        .filter(|user| !user.is_empty());
    users
        .map(|user| match user.split_once(':') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok(user.to_owned()),
            _ => Err(user.to_owned()),
        })
        .collect()
}
