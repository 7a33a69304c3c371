//! Whether there is an authorizer, and what it is told by the settings.

use tidemark_authorizer::{Rules, parse_super_users};

use crate::load::problem_of;
use crate::problem::Problem;
use crate::values::Values;

/// Kafka's name of what is here as well.
const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// The rules of the settings; `None` without an authorizer. Whoever sets another one than there is must
/// not get an open broker.
pub(crate) fn rules(values: &Values) -> Result<Option<Rules>, Vec<Problem>> {
    let text = |name| values.text(name).unwrap_or_default().trim();
    let class = text("authorizer.class.name");
    let mut problems = Vec::new();
    if !class.is_empty() && class != STANDARD {
        let what = "there is one authorizer here, and it has another name".to_owned();
        let mend = format!(
            "write authorizer.class.name={STANDARD} for Kafka's ACLs, or take it out, and everyone \
             who connects may do everything"
        );
        problems.push(problem_of(values, "authorizer.class.name", what, mend));
    }
    let super_users = parse_super_users(text("super.users")).map_err(|user| {
        let what = format!("{user:?} is no principal");
        let mend =
            "write TYPE:NAME, with semicolons between: super.users=User:admin;User:CN=broker";
        problems.push(problem_of(values, "super.users", what, mend));
    });
    match super_users {
        Ok(super_users) if problems.is_empty() => Ok((!class.is_empty()).then(|| Rules {
            super_users,
            allow_everyone_if_no_acl_found: text("allow.everyone.if.no.acl.found") == "true",
        })),
        _ => Err(problems),
    }
}

/// What is allowed and may surprise.
pub(crate) fn unwise(rules: Option<&Rules>, values: &Values) -> Option<String> {
    let is_set = |name| {
        values
            .set_text(name)
            .is_some_and(|text| !text.trim().is_empty())
    };
    match rules {
        None if is_set("super.users") || is_set("allow.everyone.if.no.acl.found") => Some(
            "authorizer.class.name is not set: everyone who connects may do everything, whatever \
             super.users and allow.everyone.if.no.acl.found say"
                .to_owned(),
        ),
        Some(rules) if rules.super_users.is_empty() && !rules.allow_everyone_if_no_acl_found => {
            Some(
                "there is an authorizer, and super.users names nobody: whoever is to make the first \
                 ACL must be named there"
                    .to_owned(),
            )
        }
        _ => None,
    }
}
