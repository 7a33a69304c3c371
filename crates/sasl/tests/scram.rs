//! SCRAM against the RFC's own exchange, against a client of the tests' own, and against clients that
//! cheat.

use aws_lc_rs::{digest, hmac};
use proptest::prelude::*;
use tidemark_sasl::fake::{self, Salt, Shape};
use tidemark_sasl::scram::{AwaitFinal, ClientFirst, MAX_MESSAGE_BYTES, NONCE_BYTES};
use tidemark_sasl::{Credential, Hash, Refusal};

const NONCE: [u8; NONCE_BYTES] = [7; NONCE_BYTES];
const BOTH: [Hash; 2] = [Hash::Sha256, Hash::Sha512];

fn credential(hash: Hash, password: &str) -> Credential {
    Credential::of_password(hash, password, b"salt of the tests".to_vec(), 4096)
}

fn hmac_of(hash: Hash, key: &[u8], message: &[u8]) -> Vec<u8> {
    let algorithm = match hash {
        Hash::Sha256 => hmac::HMAC_SHA256,
        Hash::Sha512 => hmac::HMAC_SHA512,
    };
    hmac::sign(&hmac::Key::new(algorithm, key), message)
        .as_ref()
        .to_vec()
}

fn digest_of(hash: Hash, message: &[u8]) -> Vec<u8> {
    let algorithm = match hash {
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha512 => &digest::SHA512,
    };
    digest::digest(algorithm, message).as_ref().to_vec()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|b| (0..8).rev().map(move |n| b >> n & 1))
        .collect();
    let mut text: String = bits
        .chunks(6)
        .map(|six| {
            let at = (0..6).fold(0, |at, n| at << 1 | six.get(n).copied().unwrap_or(0));
            char::from(LETTERS[usize::from(at)])
        })
        .collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// The client's last message, written from the RFC and not with the code under test.
fn client_final(hash: Hash, password: &str, salt: &[u8], bare: &str, server_first: &str) -> String {
    let nonce = server_first.split(',').next().unwrap();
    let iterations: u32 = server_first.rsplit_once("i=").unwrap().1.parse().unwrap();
    let unsigned = format!("c=biws,{nonce}");
    let all = format!("{bare},{server_first},{unsigned}");
    let salted = hash.salted_password(password, salt, iterations);
    let key = hmac_of(hash, &salted, b"Client Key");
    let signature = hmac_of(hash, &digest_of(hash, &key), all.as_bytes());
    let proof: Vec<u8> = key.iter().zip(&signature).map(|(k, s)| k ^ s).collect();
    format!("{unsigned},p={}", base64(&proof))
}

/// An exchange up to the last message.
fn begun(hash: Hash, first: &str, credential: Credential) -> (String, AwaitFinal) {
    let first = ClientFirst::parse(first.as_bytes()).unwrap();
    let (answer, waiting) = first.answer(hash, credential, &NONCE);
    (String::from_utf8(answer).unwrap(), waiting)
}

/// The exchange of RFC 7677, section 3. The server's nonce there is text of its own, so the proof is
/// checked on a credential with the RFC's salt and our nonce, and the RFC's keys against its messages.
#[test]
fn the_keys_of_rfc_7677() {
    let salt = [
        0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa,
        0x81,
    ];
    assert_eq!(base64(&salt), "W22ZaJ0SNY7soEsUEjb6gQ==");
    let credential = Credential::of_password(Hash::Sha256, "pencil", salt.to_vec(), 4096);
    let all = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
               r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
               c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let signature = hmac_of(Hash::Sha256, &credential.server_key, all.as_bytes());
    assert_eq!(
        base64(&signature),
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    );
    // ClientProof XOR ClientSignature is a key whose hash is the stored one.
    let key = hmac_of(
        Hash::Sha256,
        &Hash::Sha256.salted_password("pencil", &salt, 4096),
        b"Client Key",
    );
    let client_signature = hmac_of(Hash::Sha256, &credential.stored_key, all.as_bytes());
    let proof: Vec<u8> = key
        .iter()
        .zip(&client_signature)
        .map(|(k, s)| k ^ s)
        .collect();
    assert_eq!(
        base64(&proof),
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
}

#[test]
fn a_user_with_the_password_gets_in_and_the_server_proves_itself() {
    for hash in BOTH {
        let credential = credential(hash, "pencil");
        let bare = "n=alice,r=abc";
        let (server_first, waiting) = begun(hash, &format!("n,,{bare}"), credential.clone());
        assert!(server_first.starts_with("r=abc"), "{server_first}");
        assert!(server_first.ends_with(",i=4096"), "{server_first}");
        let last = client_final(hash, "pencil", &credential.salt, bare, &server_first);
        let end = waiting.finish(last.as_bytes()).unwrap();
        let unsigned = last.rsplit_once(",p=").unwrap().0;
        let all = format!("{bare},{server_first},{unsigned}");
        let signature = hmac_of(hash, &credential.server_key, all.as_bytes());
        assert_eq!(
            String::from_utf8(end).unwrap(),
            format!("v={}", base64(&signature))
        );
        assert!(credential.is_of(hash, "pencil"));
        assert!(!credential.is_of(hash, "pencils"));
    }
}

#[test]
fn a_wrong_password_a_foreign_proof_and_no_user_fail_alike() {
    for hash in BOTH {
        let real = credential(hash, "pencil");
        let none = fake::credential(b"secret", hash, "alice", Shape::default());
        for (credential, password) in [(real.clone(), "Pencil"), (none.clone(), "pencil")] {
            let salt = credential.salt.clone();
            let (server_first, waiting) = begun(hash, "n,,n=alice,r=abc", credential);
            let last = client_final(hash, password, &salt, "n=alice,r=abc", &server_first);
            assert_eq!(waiting.finish(last.as_bytes()), Err(Refusal::Credentials));
        }
        // The proof of another exchange, or of one that was altered on the way.
        let (server_first, waiting) = begun(hash, "n,,n=alice,r=abc", real.clone());
        let last = client_final(hash, "pencil", &real.salt, "n=mallory,r=abc", &server_first);
        assert_eq!(waiting.finish(last.as_bytes()), Err(Refusal::Credentials));
    }
}

#[test]
fn cve_2024_56128_a_nonce_that_is_not_the_servers_is_refused() {
    let hash = Hash::Sha256;
    let real = credential(hash, "pencil");
    let bare = "n=alice,r=abc";
    let (server_first, _) = begun(hash, &format!("n,,{bare}"), real.clone());
    let nonce = server_first.split(',').next().unwrap();
    for replayed in [
        "r=abc".to_owned(),
        format!("{nonce}x"),
        "r=".to_owned(),
        nonce.to_uppercase(),
    ] {
        // A client that signs what it says: only the server's own nonce keeps a replay out.
        let told = server_first.replacen(nonce, &replayed, 1);
        let last = client_final(hash, "pencil", &real.salt, bare, &told);
        let (_, waiting) = begun(hash, &format!("n,,{bare}"), real.clone());
        let refused = waiting.finish(last.as_bytes());
        assert!(
            matches!(refused, Err(Refusal::Message(_))),
            "{replayed}: {refused:?}"
        );
    }
    // The whole exchange again, as it was recorded: the server's nonce is another one by then.
    let last = client_final(hash, "pencil", &real.salt, bare, &server_first);
    let first = ClientFirst::parse(format!("n,,{bare}").as_bytes()).unwrap();
    let (_, waiting) = first.answer(hash, real, &[8; NONCE_BYTES]);
    assert!(waiting.finish(last.as_bytes()).is_err());
}

#[test]
fn cve_2017_12610_nobody_acts_for_somebody_else() {
    let parse = |text: &str| ClientFirst::parse(text.as_bytes());
    assert_eq!(
        parse("n,a=bob,n=alice,r=abc").err(),
        Some(Refusal::OtherIdentity)
    );
    assert_eq!(parse("n,a=alice,n=alice,r=abc").unwrap().user(), "alice");
}

#[test]
fn names_may_hold_commas_and_equals_signs() {
    let user =
        |text: &str| ClientFirst::parse(text.as_bytes()).map(|first| first.user().to_owned());
    assert_eq!(user("n,,n=a=2Cb=3Dc,r=x").unwrap(), "a,b=c");
    assert_eq!(user("y,,n=日本,r=x").unwrap(), "日本");
    assert_eq!(user("n,a=a=2C,n=a=2C,r=x").unwrap(), "a,");
    for bad in ["n,,n=a=2cb,r=x", "n,,n=a=,r=x", "n,,n=a=b,r=x", "n,,n=,r=x"] {
        assert!(matches!(user(bad), Err(Refusal::Message(_))), "{bad}");
    }
}

#[test]
fn first_messages_that_are_none_are_refused() {
    let long_nonce = format!("n,,n=a,r={}", "x".repeat(513));
    let giant = format!("n,,n={},r=x", "a".repeat(MAX_MESSAGE_BYTES));
    for bad in [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=a",
        "n,,n=a,",
        "n,,n=a,r=",
        "n,,r=x,n=a",
        "n,,n=a,r=x,",
        "n,,n=a,r=a b",
        "n,,n=a,r=é",
        "x,,n=a,r=x",
        ",,n=a,r=x",
        "p=tls-unique,,n=a,r=x",
        "p=,,n=a,r=x",
        "n,,m=1,n=a,r=x",
        "n,,n=a,r=x,m=1",
        "n,,n=a,r=x,tokenauth=true",
        "n,,n=a,r=x,tokenauth=false",
        "n,,n=a,r=x,e",
        "n,b,n=a,r=x",
        "n,a=,n=a,r=x",
        "n,,n=a\0,r=x",
        &long_nonce,
        &giant,
    ] {
        let refused = ClientFirst::parse(bad.as_bytes());
        assert!(matches!(refused, Err(Refusal::Message(_))), "{bad}");
    }
    assert!(ClientFirst::parse(b"n,,n=\xff,r=x").is_err());
    // What is optional is passed over, as the RFC says.
    assert!(ClientFirst::parse(b"n,,n=a,r=x,x=y").is_ok());
}

#[test]
fn last_messages_that_are_none_are_refused() {
    let hash = Hash::Sha256;
    let proof = base64(&[0; 32]);
    let (server_first, _) = begun(hash, "n,,n=a,r=x", credential(hash, "p"));
    let nonce = server_first.split(',').next().unwrap().to_owned();
    let giant = format!(
        "c=biws,{nonce},x={},p={proof}",
        "a".repeat(MAX_MESSAGE_BYTES)
    );
    for bad in [
        String::new(),
        "c=biws".to_owned(),
        format!("c=biws,{nonce}"),
        format!("c=biws,p={proof}"),
        format!("{nonce},c=biws,p={proof}"),
        format!("c=biws,{nonce},p="),
        format!("c=biws,{nonce},p=AAAA"),
        format!("c=biws,{nonce},p={proof}=="),
        format!("c=biws,{nonce},p={}", base64(&[0; 64])),
        // `y,,` where the first message said `n,,`.
        format!("c=eSws,{nonce},p={proof}"),
        format!("c=,{nonce},p={proof}"),
        format!("c=biw,{nonce},p={proof}"),
        format!("c=biws,{nonce},m=1,p={proof}"),
        format!("c=biws,{nonce},p={proof},x=y"),
        giant,
    ] {
        let (_, waiting) = begun(hash, "n,,n=a,r=x", credential(hash, "p"));
        assert!(
            matches!(waiting.finish(bad.as_bytes()), Err(Refusal::Message(_))),
            "{bad}"
        );
    }
    let (_, waiting) = begun(hash, "n,,n=a,r=x", credential(hash, "p"));
    let guess = format!("c=biws,{nonce},p={proof}");
    assert_eq!(waiting.finish(guess.as_bytes()), Err(Refusal::Credentials));
}

#[test]
fn an_unknown_user_looks_like_a_user_and_always_the_same() {
    for hash in BOTH {
        let shape = Shape::default();
        let of = |user: &str| fake::credential(b"secret", hash, user, shape);
        assert_eq!(of("nobody"), of("nobody"));
        assert_ne!(of("nobody").salt, of("nobody2").salt);
        let elsewhere = fake::credential(b"other", hash, "nobody", shape);
        assert_ne!(of("nobody").salt, elsewhere.salt);
        assert_eq!(of("nobody").stored_key.len(), hash.output_bytes());
        assert_ne!(of("nobody").stored_key, of("nobody").server_key);
        assert_eq!(Shape::of(&of("nobody").salt, 4096), shape);

        let bytes = Shape {
            iterations: 8192,
            salt: Salt::Bytes(100),
        };
        let other = fake::credential(b"secret", hash, "nobody", bytes);
        assert_eq!((other.salt.len(), other.iterations), (100, 8192));
    }
}

#[test]
fn a_salt_is_a_number_in_base_36() {
    assert_eq!(fake::salt(&[0; 17]), b"");
    let mut one = [0; 17];
    one[16] = 36;
    assert_eq!(fake::salt(&one), b"10");
    // 2^130 - 1.
    assert_eq!(fake::salt(&[0xff; 17]).len(), 26);
}

#[test]
fn a_credential_is_not_shown() {
    let credential = credential(Hash::Sha256, "pencil");
    let shown = format!("{credential:?}");
    assert_eq!(shown, "Credential { iterations: 4096, .. }");
}

proptest! {
    #[test]
    fn no_message_panics(first in ".{0,60}", last in ".{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = ClientFirst::parse(first.as_bytes());
        let _ = ClientFirst::parse(&bytes);
        let (_, waiting) = begun(Hash::Sha256, "n,,n=a,r=x", fake::credential(b"s", Hash::Sha256, "a", Shape::default()));
        prop_assert!(waiting.finish(last.as_bytes()).is_err());
    }

    #[test]
    fn a_name_is_read_as_it_was_meant(name in "[a-z,=é]{1,12}") {
        let escaped = name.replace('=', "=3D").replace(',', "=2C");
        let first = ClientFirst::parse(format!("n,,n={escaped},r=x").as_bytes()).unwrap();
        prop_assert_eq!(first.user(), name);
    }
}
