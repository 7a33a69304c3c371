//! HTTP to the admin endpoint.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, StatusCode};

/// A broker on this machine answers in milliseconds; one that is stopping may take a while.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Admin {
    address: String,
    agent: Agent,
    /// The header that says who asks, where the endpoint asks that.
    authorization: Option<String>,
}

/// Why there is no answer, as a person should read it.
#[derive(Debug)]
pub(crate) enum Failed {
    NotFound(String),
    Refused(String),
    Usage(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failed::NotFound(text) | Failed::Refused(text) | Failed::Usage(text)) = self;
        f.write_str(text)
    }
}

impl Admin {
    /// `token_file` is what the broker has as `admin.token.file`.
    pub(crate) fn new(address: &str, token_file: Option<&str>) -> Result<Admin, Failed> {
        let authorization = match token_file {
            None => None,
            Some(path) => {
                let token = std::fs::read_to_string(path)
                    .map_err(|e| Failed::Usage(format!("error: --token-file {path}: {e}")))?;
                Some(format!("Bearer {}", token.trim()))
            }
        };
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .build();
        Ok(Admin {
            address: address.to_owned(),
            agent: Agent::new_with_config(config),
            authorization,
        })
    }

    pub(crate) fn get(&self, path: &[&str], query: &str) -> Result<Value, Failed> {
        let mut request = self.agent.get(self.url(path, query));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        self.read(request.call())
    }

    pub(crate) fn post(&self, path: &[&str], query: &str) -> Result<Value, Failed> {
        let request = self.agent.post(self.url(path, query));
        let mut request = request.header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        self.read(request.send("{}"))
    }

    fn url(&self, path: &[&str], query: &str) -> String {
        let mut url = format!("http://{}", self.address);
        for part in path {
            url.push('/');
            url.push_str(&escaped(part));
        }
        if !query.is_empty() {
            url.push('?');
            url.push_str(query);
        }
        url
    }

    fn read(&self, response: Result<Response<ureq::Body>, ureq::Error>) -> Result<Value, Failed> {
        let mut response = response.map_err(|e| {
            Failed::Refused(format!(
                "error: no broker answers at its admin endpoint {}: {e}\n\
                 Is it running, with admin.listen at that address? Name another one with --admin \
                 HOST:PORT.",
                self.address
            ))
        })?;
        let status = response.status();
        let text = response.body_mut().read_to_string();
        let text =
            text.map_err(|e| Failed::Refused(format!("error: the answer broke off: {e}")))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| {
            Failed::Refused(format!(
                "error: what answers at {} is no admin endpoint of Tidemark: {e}",
                self.address
            ))
        })?;
        if status == StatusCode::OK {
            return Ok(value);
        }
        let why = value["error"].as_str().unwrap_or("it does not say why");
        let text = format!("error: {why}");
        Err(match status {
            StatusCode::NOT_FOUND => Failed::NotFound(text),
            _ => Failed::Refused(text),
        })
    }
}

/// One part of a path: a transactional id may hold any character.
fn escaped(part: &str) -> String {
    let mut out = String::new();
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_part_of_a_path_is_escaped() {
        assert_eq!(escaped("transfer-7"), "transfer-7");
        assert_eq!(escaped("a/b?c d%\u{e9}"), "a%2Fb%3Fc%20d%25%C3%A9");
    }
}
