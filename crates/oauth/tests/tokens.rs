//! Good tokens are accepted, and every way of making a bad one is refused for its own reason.

mod support;

use serde_json::{Value, json};
use support::{ISSUER, NOW_S, Signer, base64url, but, claims, expected, key_set, validate};
use tidemark_oauth::{KeySet, KeysError, Refused, Token, Validator};

const ALGORITHMS: [&str; 10] = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
];

#[test]
fn a_token_of_each_algorithm_is_accepted_and_no_other_key_or_algorithm_stands_in_for_it() {
    let signers: Vec<Signer> = ALGORITHMS.iter().map(|alg| Signer::new(alg, alg)).collect();
    let keys = key_set(&signers.iter().collect::<Vec<_>>());
    assert_eq!((keys.len(), keys.passed_over()), (10, &[][..]));
    for signer in &signers {
        let accepted = validate(&signer.token(&claims()), &keys).unwrap();
        assert_eq!(accepted.principal, "till-7");
        assert_eq!(accepted.expires_at_ms, (NOW_S + 300) * 1000);
        assert_eq!(accepted.scopes, ["read", "write"]);
        for other in ALGORITHMS.iter().filter(|alg| **alg != signer.alg) {
            // The right key, said to be of another algorithm; another key, said to be this one's.
            let header = json!({"alg": other, "kid": signer.alg}).to_string();
            let token = signer.token_with(&header, &claims().to_string());
            assert_eq!(validate(&token, &keys), Err(Refused::KeysAlgorithm));
            let header = json!({"alg": other, "kid": other}).to_string();
            let token = signer.token_with(&header, &claims().to_string());
            assert_eq!(validate(&token, &keys), Err(Refused::Signature));
        }
    }
}

/// CVE-2026-33557, Pulsar's CVE-2021-22160.
#[test]
fn unsigned_tokens_are_refused_however_none_is_spelled() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    for alg in [
        "none",
        "None",
        "NONE",
        "nOnE",
        " none",
        "none ",
        "",
        "n\u{f6}ne",
        "none\u{0}",
    ] {
        let header = json!({"alg": alg, "kid": "a"}).to_string();
        let head = format!("{}.{}", base64url(&header), base64url(claims().to_string()));
        for token in [
            format!("{head}."),
            signer.token_with(&header, &claims().to_string()),
        ] {
            assert_eq!(validate(&token, &keys), Err(Refused::Algorithm), "{alg:?}");
        }
        assert!(validate(&head, &keys).is_err(), "without a third part");
    }
    for header in [
        json!({"kid": "a"}),
        json!({"alg": null, "kid": "a"}),
        json!({"alg": 7, "kid": "a"}),
        json!({"alg": ["ES256"], "kid": "a"}),
        json!({"ALG": "ES256", "kid": "a"}),
    ] {
        let token = signer.token_with(&header.to_string(), &claims().to_string());
        assert_eq!(validate(&token, &keys), Err(Refused::Algorithm), "{header}");
    }
    // The right algorithm, and no signature.
    let token = signer.token(&claims());
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(
        validate(&format!("{signed}."), &keys),
        Err(Refused::Signature)
    );
}

#[test]
fn a_public_key_is_no_secret_to_sign_with() {
    let signer = Signer::new("a", "RS256");
    let keys = key_set(&[&signer]);
    let public = signer.jwk()["n"].as_str().unwrap().to_owned();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{public}\n-----END PUBLIC KEY-----\n");
    for alg in ["HS256", "HS384", "HS512"] {
        for secret in [
            public.as_bytes(),
            pem.as_bytes(),
            support::jwks(&[&signer]).as_bytes(),
        ] {
            let header = json!({"alg": alg, "kid": "a"}).to_string();
            let signed = format!("{}.{}", base64url(&header), base64url(claims().to_string()));
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
            let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
            let token = format!("{signed}.{}", base64url(tag.as_ref()));
            assert_eq!(validate(&token, &keys), Err(Refused::Algorithm));
            // And with the algorithm that the key is for.
            let header = json!({"alg": "RS256", "kid": "a"}).to_string();
            let signed = format!("{}.{}", base64url(&header), base64url(claims().to_string()));
            let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
            let token = format!("{signed}.{}", base64url(tag.as_ref()));
            assert_eq!(validate(&token, &keys), Err(Refused::Signature));
        }
    }
    // A secret key in the set is none.
    let with_secret = json!({"keys": [
        {"kty": "oct", "kid": "s", "alg": "HS256", "k": base64url("secret")}, signer.jwk(),
    ]});
    let keys = KeySet::parse(with_secret.to_string().as_bytes()).unwrap();
    assert_eq!(keys.len(), 1);
    assert!(
        keys.passed_over()[0].contains("secret key"),
        "{:?}",
        keys.passed_over()
    );
}

#[test]
fn a_foreign_key_is_refused_whatever_it_calls_itself() {
    let (ours, next) = (Signer::new("a", "ES256"), Signer::new("b", "ES256"));
    let keys = key_set(&[&ours, &next]);
    let foreign = Signer::new("a", "ES256");
    assert_eq!(
        validate(&foreign.token(&claims()), &keys),
        Err(Refused::Signature)
    );
    let stranger = Signer::new("c", "ES256").token(&claims());
    let unknown = validate(&stranger, &keys).unwrap_err();
    assert_eq!(unknown, Refused::UnknownKey);
    assert!(unknown.is_for_want_of_a_key());
    // Ours, called the other of ours.
    let header = json!({"alg": "ES256", "kid": "b"}).to_string();
    let token = ours.token_with(&header, &claims().to_string());
    assert_eq!(validate(&token, &keys), Err(Refused::Signature));
    // Keys that a token brings along, or tells where to find, are not looked at.
    for name in ["jwk", "jku", "x5u", "x5c"] {
        let mut header = foreign.header();
        header[name] = match name {
            "jwk" => foreign.jwk(),
            _ => "https://evil.example/jwks".into(),
        };
        let token = foreign.token_with(&header.to_string(), &claims().to_string());
        assert_eq!(validate(&token, &keys), Err(Refused::Signature), "{name}");
    }
    assert_eq!(
        validate(&ours.token(&claims()), &KeySet::default()),
        Err(Refused::NoKeys)
    );
}

#[test]
fn a_kid_may_be_left_out_only_where_there_is_one_key() {
    let mut only = Signer::new("a", "ES256");
    let keys = key_set(&[&only]);
    let other = Signer::new("b", "ES256");
    let several = key_set(&[&only, &other]);
    only.kid = None;
    let token = only.token(&claims());
    assert!(validate(&token, &keys).is_ok());
    assert_eq!(validate(&token, &several), Err(Refused::NoKeyId));
    let bare = key_set(&[&only]);
    assert!(validate(&token, &bare).is_ok(), "the key has no kid either");
    let header = json!({"alg": "ES256", "kid": 1}).to_string();
    let token = only.token_with(&header, &claims().to_string());
    assert!(matches!(
        validate(&token, &keys),
        Err(Refused::Malformed(_))
    ));
}

#[test]
fn times_are_required_and_kept_to_but_for_the_skew() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let with = |name: &str, value: Value| validate(&signer.token(&but(name, value)), &keys);

    let late = with("exp", json!(NOW_S - 29)).unwrap();
    assert_eq!(late.expires_at_ms, (NOW_S + 1) * 1000, "not past already");
    assert_eq!(
        with("exp", json!(NOW_S - 30)),
        Err(Refused::Expired { ago_s: 30 })
    );
    assert_eq!(
        with("exp", json!(0)),
        Err(Refused::Expired { ago_s: NOW_S })
    );
    assert_eq!(
        with("exp", json!(NOW_S as f64 + 0.5))
            .unwrap()
            .expires_at_ms,
        NOW_S * 1000 + 500
    );
    assert!(with("nbf", json!(NOW_S + 30)).is_ok());
    assert_eq!(
        with("nbf", json!(NOW_S + 31)),
        Err(Refused::NotYet { in_s: 31 })
    );
    assert_eq!(
        with("iat", json!(NOW_S + 31)),
        Err(Refused::NotYet { in_s: 31 })
    );
    assert!(with("nbf", Value::Null).is_ok(), "nbf is optional");

    let missing = |name: &str| Err(Refused::Claim(name.to_owned()));
    assert_eq!(with("exp", Value::Null), missing("exp"));
    assert_eq!(with("iat", Value::Null), missing("iat"));
    // CVE-2026-25537: what is no number is not passed over.
    for name in ["exp", "nbf", "iat"] {
        let soon = (NOW_S + 10).to_string();
        for value in [
            json!(soon),
            json!(-1),
            json!(true),
            json!([NOW_S]),
            json!(1e300),
            json!({}),
        ] {
            assert_eq!(with(name, value.clone()), missing(name), "{name}={value}");
        }
        let text = signer.token_with(
            &signer.header().to_string(),
            &claims().to_string().replace(
                &format!("\"{name}\":"),
                &format!("\"{name}\":null,\"was\":"),
            ),
        );
        assert_eq!(validate(&text, &keys), missing(name), "{name}=null");
    }

    // At another time the same token is another.
    let token = Token::new(signer.token(&claims()));
    let at = |s: i64| Validator::new(expected()).validate(&token, None, &keys, s * 1000);
    assert!(at(NOW_S + 329).is_ok());
    assert_eq!(at(NOW_S + 330), Err(Refused::Expired { ago_s: 30 }));
    assert_eq!(at(NOW_S - 41), Err(Refused::NotYet { in_s: 31 }));
    for strange in [i64::MIN / 1000, -1, i64::MAX / 1000] {
        assert!(at(strange).is_err());
    }
}

#[test]
fn issuer_audience_and_principal_are_required_and_are_ours() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let with = |name: &str, value: Value| validate(&signer.token(&but(name, value)), &keys);
    let missing = |name: &str| Err(Refused::Claim(name.to_owned()));

    for other in [
        "https://id.example/realms/other",
        "",
        &format!("{ISSUER}/"),
        "HTTPS://ID.example",
    ] {
        assert_eq!(with("iss", json!(other)), Err(Refused::Issuer), "{other}");
    }
    assert_eq!(with("iss", Value::Null), missing("iss"));
    assert_eq!(with("iss", json!([ISSUER])), missing("iss"));

    assert!(with("aud", json!(["billing", "tidemark"])).is_ok());
    for other in [
        json!("billing"),
        json!([]),
        json!(["Kafka"]),
        json!("kafka,tidemark"),
        json!(""),
    ] {
        assert_eq!(
            with("aud", other.clone()),
            Err(Refused::Audience),
            "{other}"
        );
    }
    assert_eq!(with("aud", Value::Null), missing("aud"));
    assert_eq!(with("aud", json!(["kafka", 7])), missing("aud"));
    assert_eq!(with("aud", json!({"kafka": true})), missing("aud"));

    let long = "x".repeat(1025);
    for other in [
        json!(""),
        json!(7),
        json!(["a"]),
        json!(" a"),
        json!("a\nb"),
        json!("a\u{85}"),
        json!(long),
    ] {
        assert_eq!(with("sub", other), missing("sub"));
    }
    assert_eq!(with("sub", Value::Null), missing("sub"));
    assert_eq!(
        with("sub", json!("J\u{f6}rg, Till 7")).unwrap().principal,
        "J\u{f6}rg, Till 7"
    );

    assert_eq!(with("scope", Value::Null).unwrap().scopes, [""; 0]);
    assert_eq!(
        with("scope", json!(["a", "b c"])).unwrap().scopes,
        ["a", "b c"]
    );
    assert_eq!(with("scope", json!(7)), missing("scope"));

    let mut named = expected();
    named.principal_claim = "preferred_username".to_owned();
    let named = Validator::new(named);
    let token = Token::new(signer.token(&but("preferred_username", json!("anna"))));
    let accepted = named.validate(&token, None, &keys, NOW_S * 1000).unwrap();
    assert_eq!(accepted.principal, "anna");
    let without = Token::new(signer.token(&claims()));
    assert_eq!(
        named.validate(&without, None, &keys, NOW_S * 1000),
        missing("preferred_username")
    );
}

/// CVE-2017-12610
#[test]
fn an_authorization_id_is_the_tokens_own_principal() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let token = Token::new(signer.token(&claims()));
    let validator = Validator::new(expected());
    let ask = |id| validator.validate(&token, Some(id), &keys, NOW_S * 1000);
    assert!(ask("till-7").is_ok());
    for other in ["admin", "", "till-7 ", "User:till-7"] {
        assert_eq!(ask(other), Err(Refused::AuthorizationId), "{other}");
    }
}

#[test]
fn a_changed_token_is_another_token() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let token = signer.token(&claims());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = signed.split_once('.').unwrap();
    for name in ["sub", "exp", "aud", "iss"] {
        let payload = base64url(but(name, json!("admin")).to_string());
        let forged = format!("{header}.{payload}.{signature}");
        assert_eq!(validate(&forged, &keys), Err(Refused::Signature), "{name}");
    }
    // Any one letter. Some make the base64 or the JSON bad, none makes a good token.
    for n in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[n] = if bytes[n] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(validate(&changed, &keys).is_err(), "letter {n}");
    }
    for n in 0..token.len() {
        assert!(validate(&token[..n], &keys).is_err(), "cut at {n}");
    }
}

#[test]
fn headers_that_ask_for_more_and_tokens_for_other_purposes_are_refused() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let with = |name: &str, value: Value| {
        let mut header = signer.header();
        header[name] = value;
        validate(
            &signer.token_with(&header.to_string(), &claims().to_string()),
            &keys,
        )
    };
    for critical in [json!(["exp"]), json!([]), json!(null), json!("b64")] {
        assert_eq!(with("crit", critical), Err(Refused::Critical));
    }
    for good in ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt"] {
        assert!(with("typ", json!(good)).is_ok(), "{good}");
    }
    for other in [
        json!("logout+jwt"),
        json!("dpop+jwt"),
        json!("JOSE"),
        json!(null),
        json!(1),
    ] {
        assert_eq!(with("typ", other), Err(Refused::Type));
    }
    let bare = json!({"alg": "ES256", "kid": "a"}).to_string();
    assert!(validate(&signer.token_with(&bare, &claims().to_string()), &keys).is_ok());
}

#[test]
fn what_is_no_token_is_refused_before_anything_is_made_of_it() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let good = signer.token(&claims());
    let header = signer.header().to_string();
    let twice = claims().to_string().replacen('{', "{\"sub\":\"admin\",", 1);
    let deep = claims().to_string().replacen(
        '{',
        &format!("{{\"x\":{}{},", "[".repeat(500), "]".repeat(500)),
        1,
    );
    let kid_twice = r#"{"alg":"ES256","alg":"none","kid":"a"}"#;
    for (token, what) in [
        (String::new(), "nothing"),
        ("..".to_owned(), "three empty parts"),
        (format!("{good}."), "four parts"),
        (format!("{good}.x.y"), "five parts, as an encrypted one"),
        (format!("{good}="), "padding"),
        (good.replacen('.', "\n.", 1), "a line end"),
        (good.replacen('.', "..", 1), "an empty part"),
        (format!(" {good}"), "a blank"),
        (signer.token_with(&header, &twice), "a claim twice"),
        (signer.token_with(&header, &deep), "nested too deeply"),
        (
            signer.token_with(kid_twice, &claims().to_string()),
            "a header twice",
        ),
        (signer.token_with(&header, "[]"), "no object"),
        (signer.token_with(&header, ""), "no JSON"),
        (
            signer.token_with("\"ES256\"", &claims().to_string()),
            "a header that is no object",
        ),
        (signer.token(&but("x", json!("y".repeat(8192)))), "a giant"),
        ("a".repeat(1 << 20), "a million letters"),
        (".".repeat(8000), "dots"),
    ] {
        let refused = validate(&token, &keys).unwrap_err();
        assert!(
            matches!(refused, Refused::Malformed(_)),
            "{what}: {refused:?}"
        );
        assert!(!refused.is_for_want_of_a_key());
    }
    // The standard alphabet of base64 is another one.
    for n in 0..200 {
        let token = signer.token(&but("n", json!(n)));
        if token.contains(['-', '_']) {
            let standard = token.replace('-', "+").replace('_', "/");
            assert!(matches!(
                validate(&standard, &keys),
                Err(Refused::Malformed(_))
            ));
        }
    }
}

#[test]
fn refusals_say_nothing_of_the_token() {
    let signer = Signer::new("a", "ES256");
    let keys = key_set(&[&signer]);
    let secret = "sesame-open";
    for (name, value) in [
        ("iss", json!(secret)),
        ("aud", json!(secret)),
        ("exp", json!(secret)),
        ("sub", json!([secret])),
    ] {
        let token = Token::new(signer.token(&but(name, value)));
        let refused = Validator::new(expected())
            .validate(&token, None, &keys, NOW_S * 1000)
            .unwrap_err();
        let shown = format!("{refused} {refused:?} {token:?}");
        assert!(!shown.contains(secret) && !shown.contains("eyJ"), "{shown}");
    }
}

#[test]
fn only_keys_that_check_signatures_are_taken_from_a_set() {
    let (rsa, ec, ed) = (
        Signer::new("r", "RS256"),
        Signer::new("e", "ES256"),
        Signer::new("o", "EdDSA"),
    );
    let parse = |keys: Vec<Value>| KeySet::parse(json!({ "keys": keys }).to_string().as_bytes());
    let but = |signer: &Signer, name: &str, value: Value| {
        let mut jwk = signer.jwk();
        match value {
            Value::Null => drop(jwk.as_object_mut().unwrap().remove(name)),
            value => jwk[name] = value,
        }
        jwk
    };
    let small = base64url([&[0x7f][..], &[0xff; 255]].concat());
    let large = base64url([0xff; 1025]);
    for (bad, what) in [
        (json!("key"), "no object"),
        (but(&rsa, "use", json!("enc")), "for encryption"),
        (
            but(&rsa, "key_ops", json!(["encrypt"])),
            "for encryption, said otherwise",
        ),
        (but(&rsa, "alg", json!("HS256")), "a symmetric algorithm"),
        (but(&rsa, "alg", json!("none")), "no algorithm"),
        (
            but(&rsa, "alg", json!("RSA-OAEP")),
            "an algorithm of encryption",
        ),
        (
            but(&rsa, "alg", json!("ES256")),
            "an algorithm of another kind of key",
        ),
        (
            but(&ec, "alg", json!("RS256")),
            "an algorithm of another kind of key",
        ),
        (
            but(&ec, "alg", json!("ES384")),
            "an algorithm of another curve",
        ),
        (but(&rsa, "d", json!("AQAB")), "a private key"),
        (but(&ec, "kty", json!("oct")), "a secret key"),
        (but(&ec, "kty", Value::Null), "of no kind"),
        (but(&ec, "crv", json!("P-256K")), "an unknown curve"),
        (but(&ec, "crv", json!("P-384")), "another curve"),
        (but(&ec, "x", json!("AQAB")), "a short coordinate"),
        (
            but(&ec, "y", ec.jwk()["x"].clone()),
            "no point of the curve",
        ),
        (but(&ec, "y", Value::Null), "half a point"),
        (but(&ed, "x", json!("AQAB")), "a short key"),
        (but(&rsa, "n", json!(small)), "2047 bits"),
        (but(&rsa, "n", json!(large)), "more than 8192 bits"),
        (but(&rsa, "n", json!("")), "no modulus"),
        (but(&rsa, "n", json!("+/+/")), "another alphabet"),
        (but(&rsa, "e", json!("AQ")), "the exponent 1"),
        (
            but(&rsa, "e", json!("AAE")),
            "the exponent 1, with a zero in front",
        ),
        (but(&rsa, "e", json!("Ag")), "an even exponent"),
        (but(&rsa, "e", json!("")), "no exponent"),
        (but(&rsa, "kid", json!(7)), "a kid that is no string"),
    ] {
        let alone = parse(vec![bad.clone()]);
        let Err(KeysError::NoneOfUse { total: 1, reasons }) = alone else {
            panic!("{what} was taken: {bad}");
        };
        assert!(!reasons.is_empty());
        let good = Signer::new("good", "EdDSA");
        let beside = parse(vec![bad, good.jwk()]).unwrap();
        assert_eq!((beside.len(), beside.passed_over().len()), (1, 1), "{what}");
    }
    // Without alg a key has the most usual one of its kind, and only that.
    let keys = parse(vec![
        but(&rsa, "alg", Value::Null),
        but(&ec, "alg", Value::Null),
    ])
    .unwrap();
    assert!(validate(&rsa.token(&claims()), &keys).is_ok());
    assert!(validate(&ec.token(&claims()), &keys).is_ok());
    let header = json!({"alg": "PS256", "kid": "r"}).to_string();
    assert_eq!(
        validate(&rsa.token_with(&header, &claims().to_string()), &keys),
        Err(Refused::KeysAlgorithm)
    );
    // Ed25519 has two names.
    let keys = parse(vec![but(&ed, "alg", json!("Ed25519"))]).unwrap();
    assert!(validate(&ed.token(&claims()), &keys).is_ok());
}

#[test]
fn a_set_that_is_none_is_refused_with_what_is_wrong() {
    let ec = Signer::new("e", "ES256");
    let parse = |text: &str| KeySet::parse(text.as_bytes()).err().map(|e| e.to_string());
    let twice = support::jwks(&[&ec, &ec]);
    let many = json!({"keys": vec![ec.jwk(); 257]}).to_string();
    for (text, what) in [
        ("", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "no array \"keys\""),
        (r#"{"keys":{}}"#, "no array \"keys\""),
        (r#"{"keys":[],"keys":[]}"#, "a name twice"),
        (r#"{"keys":[]}"#, "the array is empty"),
        ("-----BEGIN PUBLIC KEY-----", "no JSON"),
        (&twice, "two of its keys have the kid \"e\""),
        (&many, "more than 256 keys"),
        (&" ".repeat((1 << 20) + 1), "more than 1048576 bytes"),
    ] {
        let told = parse(text).unwrap_or_default();
        assert!(told.contains(what), "{what}: {told}");
    }
}
