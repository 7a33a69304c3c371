//! A client that authenticates, well or badly.

use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use tidemark_sasl::{Hash, base64};

use crate::client::RawClient;
use crate::requests::text;

/// A message of PLAIN.
pub fn plain_token(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

/// A client of SCRAM, as RFC 5802 has it.
pub struct ScramClient {
    hash: Hash,
    password: String,
    bare: String,
}

impl ScramClient {
    pub fn new(hash: Hash, user: &str, password: &str) -> ScramClient {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        ScramClient {
            hash,
            password: password.to_owned(),
            bare: format!("n={user},r=testkit0nonce"),
        }
    }

    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.bare).into_bytes()
    }

    /// The last message, and what the server's answer to it must be.
    pub fn last(&self, server_first: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let server_first = std::str::from_utf8(server_first).expect("the server speaks UTF-8");
        let mut fields = server_first.split(',');
        let mut field = |name| {
            let field: Option<&str> = fields.next().and_then(|f| f.strip_prefix(name));
            field.unwrap_or_else(|| panic!("no {name} in {server_first}"))
        };
        let (nonce, salt, iterations) = (field("r="), field("s="), field("i="));
        let salt = base64::decode(salt).expect("a salt is base64");
        let iterations = iterations.parse().expect("a count is a number");
        let salted = self.hash.salted_password(&self.password, &salt, iterations);
        let key = self.hash.hmac(&salted, b"Client Key");
        let unsigned = format!("c=biws,r={nonce}");
        let all = format!("{},{server_first},{unsigned}", self.bare);
        let signature = self.hash.hmac(&self.hash.digest(&key), all.as_bytes());
        let proof: Vec<u8> = key.iter().zip(&signature).map(|(k, s)| k ^ s).collect();
        let server_key = self.hash.hmac(&salted, b"Server Key");
        let server = self.hash.hmac(&server_key, all.as_bytes());
        (
            format!("{unsigned},p={}", base64::encode(&proof)).into_bytes(),
            format!("v={}", base64::encode(&server)).into_bytes(),
        )
    }
}

impl RawClient {
    pub async fn sasl_handshake(&mut self, version: i16, mechanism: &str) -> SaslHandshakeResponse {
        let request = SaslHandshakeRequest::default().with_mechanism(text(mechanism));
        self.send(version, &request).await
    }

    pub async fn sasl_token(&mut self, version: i16, token: Vec<u8>) -> SaslAuthenticateResponse {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(token.into());
        self.send(version, &request).await
    }

    /// A whole authentication by PLAIN; the answer to the password.
    pub async fn sasl_plain(&mut self, user: &str, password: &str) -> SaslAuthenticateResponse {
        assert_eq!(self.sasl_handshake(1, "PLAIN").await.error_code, 0);
        self.sasl_token(2, plain_token(user, password)).await
    }

    /// A whole authentication by SCRAM; the answer to the proof. If it was good, the server has proved
    /// itself too.
    pub async fn sasl_scram(
        &mut self,
        hash: Hash,
        user: &str,
        password: &str,
    ) -> SaslAuthenticateResponse {
        assert_eq!(self.sasl_handshake(1, hash.mechanism()).await.error_code, 0);
        let client = ScramClient::new(hash, user, password);
        let first = self.sasl_token(2, client.first()).await;
        assert_eq!(first.error_code, 0, "{:?}", first.error_message);
        let (last, expected) = client.last(&first.auth_bytes);
        let answer = self.sasl_token(2, last).await;
        if answer.error_code == 0 {
            assert_eq!(answer.auth_bytes, expected, "the server's proof");
        }
        answer
    }
}
