//! JAAS strings of a server.properties that moves here: read by a list of what they may say. No class
//! is loaded from them, and no option is passed on (CVE-2023-25194, CVE-2025-27818).

use std::collections::BTreeMap;

use crate::sasl::SaslMechanism;
use crate::secret::Secret;

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
const OAUTH: &str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";

/// Reads the value of `listener.name.NAME.MECHANISM.sasl.jaas.config`: the users of PLAIN. Options with
/// which a broker of Kafka's logs in at others are passed over: there are no others here. An error is
/// what is wrong and how to mend it, without a word of the value.
pub(crate) fn users(
    mechanism: SaslMechanism,
    text: &str,
) -> Result<BTreeMap<String, Secret>, (String, String)> {
    let wrong = |what: &str, mend: &str| Err((what.to_owned(), mend.to_owned()));
    const EXAMPLE: &str = "write org.apache.kafka.common.security.plain.PlainLoginModule required \
                           user_alice=\"PASSWORD\";";
    let Some(tokens) = tokens(text) else {
        return wrong("it is cut short", EXAMPLE);
    };
    let mut tokens = tokens.into_iter();
    let module = match (tokens.next(), tokens.next()) {
        (Some(Token::Word(module)), Some(Token::Word(flag)))
            if ["required", "requisite", "sufficient", "optional"]
                .contains(&flag.to_ascii_lowercase().as_str()) =>
        {
            module
        }
        _ => return wrong("it does not begin with a login module and a flag", EXAMPLE),
    };
    let wanted = match mechanism {
        SaslMechanism::Plain => PLAIN,
        SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => SCRAM,
        SaslMechanism::OauthBearer => OAUTH,
    };
    if module != wanted {
        return Err((
            format!("its login module is not {wanted}, and no other is known for {mechanism}"),
            "take it out, or write that module: no classes are loaded here".to_owned(),
        ));
    }
    let mut users = BTreeMap::new();
    loop {
        let option = match tokens.next() {
            Some(Token::End) => break,
            Some(Token::Word(option)) => option,
            _ => return wrong("it is cut short", "end it with a semicolon"),
        };
        let (Some(Token::Equals), Some(Token::Word(value))) = (tokens.next(), tokens.next()) else {
            return wrong("an option has no value", "write options as NAME=\"VALUE\"");
        };
        match option.strip_prefix("user_") {
            Some("") => return wrong("a user has no name", EXAMPLE),
            Some(_) if value.is_empty() => return wrong("a user has no password", EXAMPLE),
            Some(user) if mechanism == SaslMechanism::Plain => {
                if users.insert(user.to_owned(), Secret::new(value)).is_some() {
                    return wrong("a user is in it twice", "keep one of the two");
                }
            }
            _ if option == "username" || option == "password" => {}
            _ => {
                return wrong(
                    "it has an option that is not known here",
                    "keep user_NAME=\"PASSWORD\" for PLAIN, and username and password",
                );
            }
        }
    }
    match tokens.next() {
        None => Ok(users),
        Some(_) => wrong("it has more than one login module", "keep one"),
    }
}

#[derive(PartialEq)]
enum Token {
    Word(String),
    Equals,
    End,
}

/// `None` where a quote is not closed.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '=' => tokens.push(Token::Equals),
            ';' => tokens.push(Token::End),
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                loop {
                    match chars.next()? {
                        '\\' => word.push(chars.next()?),
                        end if end == quote => break,
                        c => word.push(c),
                    }
                }
                tokens.push(Token::Word(word));
            }
            first => {
                let mut word = String::from(first);
                let ends = |c: &char| c.is_whitespace() || matches!(c, '=' | ';' | '"' | '\'');
                while let Some(c) = chars.next_if(|c| !ends(c)) {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_own_example_is_read() {
        let text = "org.apache.kafka.common.security.plain.PlainLoginModule required \\\n\
                    username=\"admin\" password=\"admin-secret\" user_admin=\"admin-secret\" \
                    user_alice='al;ice=\\'s secret' user_bob=plain;"
            .replace("\\\n", "\n");
        let users = users(SaslMechanism::Plain, &text).unwrap();
        let found: Vec<(&str, &str)> = users
            .iter()
            .map(|(n, p)| (n.as_str(), p.expose()))
            .collect();
        assert_eq!(
            found,
            [
                ("admin", "admin-secret"),
                ("alice", "al;ice='s secret"),
                ("bob", "plain")
            ]
        );
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required \
                     username=\"admin\" password=\"admin-secret\";";
        assert!(
            users_of(SaslMechanism::ScramSha256, scram)
                .unwrap()
                .is_empty()
        );
    }

    fn users_of(
        mechanism: SaslMechanism,
        text: &str,
    ) -> Result<BTreeMap<String, Secret>, (String, String)> {
        users(mechanism, text)
    }

    #[test]
    fn anything_else_is_refused_without_showing_it() {
        let plain = |rest: &str| format!("{PLAIN} required {rest}");
        for text in [
            String::new(),
            "com.sun.security.auth.module.JndiLoginModule required user.provider.url=\"ldap://hunter2\";".to_owned(),
            "com.sun.security.auth.module.LdapLoginModule required hunter2=\"x\";".to_owned(),
            plain("user_a=\"hunter2\""),
            plain("user_a=\"hunter2"),
            plain("user_a hunter2;"),
            plain("user_=\"hunter2\";"),
            plain("user_a=\"\";"),
            plain("serviceName=\"hunter2\";"),
            plain("user_a=\"hunter2\" user_a=\"hunter3\";"),
            plain("user_a=\"hunter2\"; x y;"),
            format!("{PLAIN} whenever user_a=\"hunter2\";"),
            format!("{SCRAM} required username=\"hunter2\";"),
        ] {
            let (what, mend) = users(SaslMechanism::Plain, &text).unwrap_err();
            assert!(!what.contains("hunter") && !mend.contains("hunter"), "{what}: {mend}");
        }
        let token = format!("{SCRAM} required tokenauth=\"true\";");
        assert!(users(SaslMechanism::ScramSha512, &token).is_err());
    }
}
