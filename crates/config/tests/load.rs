//! Settings from all their sources, as a person meets them.

use std::path::Path;

use tidemark_config::{
    ConfigError, ConfigFile, ExclusiveOperations, FileKind, Inputs, Loaded, Settings, Source,
    TransactionLease, load, rows,
};

fn from_file(path: &str, text: &str) -> Inputs {
    Inputs {
        file: Some(ConfigFile::new(path, text)),
        ..Inputs::default()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn from_env(variables: &[(&str, &str)]) -> Inputs {
    Inputs {
        env: pairs(variables),
        ..Inputs::default()
    }
}

fn from_flags(flags: &[(&str, &str)]) -> Inputs {
    Inputs {
        flags: pairs(flags),
        ..Inputs::default()
    }
}

/// The one problem of a refused start, as shown.
fn only_problem(result: Result<Loaded, ConfigError>) -> String {
    let error = result.expect_err("the settings were accepted");
    assert_eq!(error.problems.len(), 1, "{error}");
    error.to_string()
}

#[test]
fn without_any_source_the_broker_is_local_and_keeps_its_data_beside_it() {
    let settings = Settings::default();
    assert_eq!(settings.listeners.len(), 1);
    assert_eq!(settings.listeners[0].bind.to_string(), "127.0.0.1:9092");
    assert_eq!(settings.listeners[0].advertised, None);
    assert_eq!(settings.data_dir, Path::new("./tidemark-data"));
    assert_eq!(settings.node_id, 0);
    assert_eq!(settings.num_partitions, 1);
    assert!(settings.auto_create_topics_enable);
    assert_eq!(
        settings.topic_defaults.config().max_message_bytes,
        1_048_588
    );
    assert_eq!(settings.transaction_max_timeout_ms, 900_000);
    assert_eq!(settings.group_initial_rebalance_delay_ms, 3000);
    assert_eq!(settings.journal_slot_bytes, 64 << 20);
    assert_eq!(settings.cluster_id, None);
    for row in rows() {
        assert_eq!(settings.values.source(row.name), Source::Default);
    }
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let mut inputs = from_file(
        "t.toml",
        "num.partitions = 2\nnode.id = 2\ntail.bytes = 2000000\n",
    );
    let partitions = |inputs: &Inputs| load(inputs).unwrap().settings.num_partitions;
    assert_eq!(partitions(&inputs), 2);
    inputs.env = pairs(&[("TIDEMARK_NUM_PARTITIONS", "3"), ("HOME", "/root")]);
    assert_eq!(partitions(&inputs), 3);
    inputs.flags = pairs(&[("num-partitions", "4")]);
    assert_eq!(partitions(&inputs), 4);

    let values = load(&inputs).unwrap().settings.values;
    assert_eq!(
        values.source("num.partitions").to_string(),
        "flag --num-partitions"
    );
    assert_eq!(values.source("tail.bytes").to_string(), "t.toml:3");
    assert_eq!(values.source("broker.id").to_string(), "t.toml:2");
    assert_eq!(values.source("log.dirs").to_string(), "default");
}

#[test]
fn every_setting_can_be_given_in_every_way() {
    for row in rows() {
        let Some(default) = &row.default else {
            continue;
        };
        let env = tidemark_config::Row::env(row.name);
        let flag = tidemark_config::Row::flag(row.name);
        let ways = [
            from_file("t.properties", &format!("{}={default}\n", row.name)),
            from_env(&[(&env, default)]),
            from_flags(&[(&flag, default)]),
        ];
        for way in ways {
            let values = load(&way).unwrap().settings.values;
            let empty_variable = default.is_empty() && !way.env.is_empty();
            let set = values.source(row.name) != Source::Default;
            assert_eq!(set, !empty_variable, "{} by {way:?}", row.name);
        }
    }
}

#[test]
fn a_misspelt_key_is_refused_with_what_was_meant() {
    let refused = only_problem(load(&from_file(
        "t.toml",
        "\njournal.slots.bytes = 1048576\n",
    )));
    assert!(refused.contains("t.toml:2"), "{refused}");
    assert!(
        refused.contains("did you mean journal.slot.bytes?"),
        "{refused}"
    );

    let refused = only_problem(load(&from_env(&[("TIDEMARK_TIAL_BYTES", "1")])));
    assert!(
        refused.contains("did you mean TIDEMARK_TAIL_BYTES?"),
        "{refused}"
    );

    let refused = only_problem(load(&from_flags(&[("num-partition", "1")])));
    assert!(
        refused.contains("did you mean --num-partitions?"),
        "{refused}"
    );

    let refused = only_problem(load(&from_file("s.properties", "tail.byte=1\n")));
    assert!(refused.contains("did you mean tail.bytes?"), "{refused}");

    let refused = only_problem(load(&from_file("t.toml", "quite.another.thing = 1\n")));
    assert!(refused.contains("config explain"), "{refused}");
}

#[test]
fn a_wrong_value_is_told_with_place_value_and_mend() {
    let refused = only_problem(load(&from_file("t.toml", "num.partitions = 0\n")));
    for says in [
        "num.partitions",
        "t.toml:1",
        "\"0\"",
        "1 or more",
        "default is 1",
    ] {
        assert!(refused.contains(says), "{says}: {refused}");
    }
    let refused = only_problem(load(&from_env(&[("TIDEMARK_NODE_ID", "x")])));
    assert!(
        refused.contains("environment variable TIDEMARK_NODE_ID"),
        "{refused}"
    );
    let refused = only_problem(load(&from_flags(&[("listen", "localhost")])));
    assert!(refused.contains("--listen 127.0.0.1:9092"), "{refused}");
}

#[test]
fn all_problems_are_told_at_once() {
    let mut inputs = from_file("t.toml", "num.partitions = 0\nnode.id = -3\n");
    inputs.env = pairs(&[("TIDEMARK_LISTENERS", "PLAINTEXT://h")]);
    let error = load(&inputs).unwrap_err();
    assert_eq!(error.problems.len(), 3, "{error}");
    assert!(error.to_string().lines().count() <= 24);
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let cases: [&[(&str, &str)]; 5] = [
        &[("group-min-session-timeout-ms", "2000000")],
        &[("journal-slot-bytes", "1073741824")],
        &[("message-max-bytes", "67108864")],
        &[("listeners", "INSIDE://:9092")],
        &[("advertised-listeners", "OTHER://h:1")],
    ];
    for flags in cases {
        let refused = only_problem(load(&from_flags(flags)));
        assert!(refused.contains(&format!("flag --{}", flags[0].0)) || flags[0].0 == "listeners");
    }
}

#[test]
fn kafkas_shipped_file_starts_unchanged() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/server.properties");
    let file = ConfigFile::read(Path::new(path)).unwrap();
    assert_eq!(file.kind, FileKind::Properties);
    let inputs = Inputs {
        file: Some(file),
        ..Inputs::default()
    };
    let Loaded { settings, notes } = load(&inputs).unwrap();
    assert_eq!(settings.node_id, 1);
    assert_eq!(
        settings.listeners.len(),
        1,
        "the controller's listener is not opened"
    );
    assert_eq!(settings.listeners[0].bind.to_string(), ":9092");
    let advertised = settings.listeners[0].advertised.as_ref().unwrap();
    assert_eq!(advertised.to_string(), "localhost:9092");
    assert_eq!(settings.data_dir, Path::new("/tmp/kraft-combined-logs"));
    assert_eq!(settings.topic_defaults.config().retention_ms, 604_800_000);

    // Every key is used, or named in one line.
    assert_eq!(notes.len(), 2, "{notes:?}");
    for key in [
        "num.io.threads",
        "controller.quorum.bootstrap.servers",
        "transaction.state.log.min.isr",
    ] {
        assert!(notes[0].contains(key), "{}", notes[0]);
    }
    assert!(!notes[0].contains("log.retention.hours"));
    assert!(notes[1].contains("/tmp"), "{}", notes[1]);
}

#[test]
fn what_neither_kafka_nor_tidemark_knows_is_named_in_a_line_of_its_own() {
    let text =
        "my.plugin.endpoint=x\nssl.keystore.password=PEM\nlistener.name.a.ssl.key.password=s\n";
    let notes = load(&from_file("server.properties", text)).unwrap().notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("ssl.keystore.password, listener.name.a.ssl.key.password"));
    assert!(notes[1].contains("my.plugin.endpoint") && notes[1].contains("neither"));
    assert!(
        !notes[0].contains("=s"),
        "a value that may be a secret is shown"
    );
}

#[test]
fn a_file_that_asks_for_more_security_than_there_is_does_not_start() {
    let refused = [
        "listeners=SASL_SSL://:9092\n",
        "listeners=SASL_PLAINTEXT://:9092\nsasl.enabled.mechanisms=GSSAPI\n",
        "listeners=SECURE://:9092\nlistener.security.protocol.map=SECURE:SSL\n",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n",
        "process.roles=controller\n",
    ];
    for text in refused {
        only_problem(load(&from_file("server.properties", text)));
    }
}

#[test]
fn a_listener_with_tls_needs_its_files_in_pem() {
    const TLS: &str = "listeners=SSL://:9093\nssl.keystore.location=/k.pem\n";
    let settings = load(&from_file("server.properties", TLS)).unwrap().settings;
    assert_eq!(settings.ssl_keystore_location.as_deref(), Some("/k.pem"));
    assert_eq!(settings.ssl_client_auth, "none");

    for (more, told) in [
        ("ssl.keystore.type=JKS", "keytool"),
        ("ssl.truststore.type=PKCS12", "openssl pkcs12"),
        ("ssl.client.auth=required", "ssl.truststore.location="),
        ("ssl.enabled.protocols=TLSv1.1", "TLSv1.2"),
        ("ssl.keystore.key=-----BEGIN", "tls.key.location"),
        ("ssl.cipher.suites=TLS_RSA_WITH_NULL_SHA", "take it out"),
        (
            "listener.name.ssl.ssl.client.auth=required",
            "without listener.name",
        ),
        (
            "listener.name.SSL.ssl.client.auth=required",
            "without listener.name",
        ),
        ("ssl.client.atuh=required", "did you mean ssl.client.auth?"),
        (
            "ssl.enabled.protocol=TLSv1.3",
            "did you mean ssl.enabled.protocols?",
        ),
        ("SSL.CLIENT.AUTH=required", "did you mean ssl.client.auth?"),
    ] {
        let text = format!("{TLS}{more}\n");
        let problem = only_problem(load(&from_file("server.properties", &text)));
        assert!(problem.contains(told), "{more}: {problem}");
    }
    // Without such a listener they change nothing, as in Kafka.
    let text = "ssl.keystore.type=JKS\nssl.client.auth=requested\nssl.cipher.suites=X\n";
    load(&from_file("server.properties", text)).unwrap();
    // But nobody is to believe that certificates are required where none is asked for.
    let text = format!("{TLS}ssl.truststore.location=/c.pem\nssl.client.auth=required\n");
    let mut inputs = from_file("server.properties", &text);
    load(&inputs).unwrap();
    inputs.flags = vec![("listen".to_owned(), "0.0.0.0:9093".to_owned())];
    assert!(only_problem(load(&inputs)).contains("none speaks SSL"));
    // What protects nothing may stand there.
    for more in [
        "ssl.cipher.suites=",
        "ssl.keystore.password=x",
        "listener.name.ssl.max.connections=100",
        "principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ] {
        load(&from_file("server.properties", &format!("{TLS}{more}\n"))).unwrap();
    }
}

const SASL: &str = "listeners=SASL_PLAINTEXT://:9092,OUT://:9094\n\
                    listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,OUT:SASL_SSL\n\
                    ssl.keystore.location=/k.pem\n";

#[test]
fn each_listener_with_sasl_has_its_mechanisms() {
    let mechanisms = |more: &str| -> Vec<Vec<(&'static str, u64)>> {
        let text = format!("{SASL}{more}");
        let settings = load(&from_file("server.properties", &text))
            .unwrap()
            .settings;
        let of = |l: &tidemark_config::Listener| {
            let mechanisms = &l.sasl.as_ref().unwrap().mechanisms;
            mechanisms.iter().map(|(m, ms)| (m.name(), *ms)).collect()
        };
        settings.listeners.iter().map(of).collect()
    };
    let both = vec![("SCRAM-SHA-256", 0), ("SCRAM-SHA-512", 0)];
    assert_eq!(mechanisms(""), [both.clone(), both]);
    assert_eq!(
        mechanisms(
            "sasl.enabled.mechanisms=SCRAM-SHA-512\nlistener.name.out.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n\
             connections.max.reauth.ms=1000\nlistener.name.out.plain.connections.max.reauth.ms=2000\n"
        ),
        [
            vec![("SCRAM-SHA-512", 1000)],
            vec![("PLAIN", 2000), ("SCRAM-SHA-256", 1000)]
        ]
    );
    // The environment wins over the file, here as everywhere.
    let mut inputs = from_file(
        "s.properties",
        &format!("{SASL}listener.name.out.sasl.enabled.mechanisms=PLAIN\n"),
    );
    inputs.env = pairs(&[(
        "TIDEMARK_LISTENER_NAME_OUT_SASL_ENABLED_MECHANISMS",
        "SCRAM-SHA-256",
    )]);
    let settings = load(&inputs).unwrap().settings;
    assert_eq!(
        settings.listeners[1].sasl.as_ref().unwrap().mechanisms[0]
            .0
            .name(),
        "SCRAM-SHA-256"
    );
}

/// CVE-2026-33557: a token whose signature, issuer or audience nobody checks is a token of anybody.
#[test]
fn tokens_are_taken_only_where_all_that_checks_them_is_named() {
    const NEEDED: [(&str, &str); 3] = [
        (
            "sasl.oauthbearer.jwks.endpoint.url",
            "https://id.example/certs",
        ),
        ("sasl.oauthbearer.expected.issuer", "https://id.example"),
        ("sasl.oauthbearer.expected.audience", "kafka,shop"),
    ];
    const LISTENER: &str = "listeners=SASL_SSL://:9094\nssl.keystore.location=/s.pem\n\
                            sasl.enabled.mechanisms=OAUTHBEARER,SCRAM-SHA-512\n";
    let with = |pairs: &[(&str, &str)], more: &str| {
        let lines: String = pairs.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
        load(&from_file(
            "server.properties",
            &format!("{LISTENER}{lines}{more}"),
        ))
    };
    let loaded = with(&NEEDED, "").unwrap();
    let listener = &loaded.settings.listeners[0];
    let mechanisms = &listener.sasl.as_ref().unwrap().mechanisms;
    assert_eq!(mechanisms[0].0.name(), "OAUTHBEARER");
    assert_eq!(loaded.settings.sasl_oauthbearer_clock_skew_seconds, 30);
    for missing in 0..NEEDED.len() {
        for empty in [None, Some(""), Some(" , ")] {
            let mut pairs = NEEDED.to_vec();
            let name = pairs[missing].0;
            match empty {
                None => drop(pairs.remove(missing)),
                // A comma is text in the other two.
                Some(" , ") if missing != 2 => continue,
                Some(empty) => pairs[missing].1 = empty,
            }
            let problem = only_problem(with(&pairs, ""));
            assert!(problem.contains("speaks OAUTHBEARER"), "{problem}");
            assert!(
                problem.contains(&format!("{name}=")),
                "the mend of {name}: {problem}"
            );
        }
    }
    for url in [
        "http://id.example/certs",
        "id.example",
        "ftp://id.example/certs",
    ] {
        let mut pairs = NEEDED.to_vec();
        pairs[0].1 = url;
        let problem = only_problem(with(&pairs, ""));
        assert!(
            problem.contains("neither with https:// nor with file:///"),
            "{problem}"
        );
    }
    for (more, told) in [
        (
            "sasl.oauthbearer.jwt.validator.class=x.Y\n",
            "always checked",
        ),
        (
            "sasl.oauthbearer.allow.unverified.issuer=true\n",
            "always checked",
        ),
        ("sasl.oauthbearer.expected.issuers=x\n", "did you mean"),
        (
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=x\n",
            "take it out",
        ),
    ] {
        let problem = only_problem(with(&NEEDED, more));
        assert!(problem.contains(told), "{more}: {problem}");
    }
    // As a file that moves here has it.
    let moved = "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\
                 org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n\
                 sasl.oauthbearer.token.endpoint.url=https://id.example/token\n";
    with(&NEEDED, moved).unwrap();
    // A token is heard like a password.
    let pairs: String = NEEDED.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
    let open =
        format!("listeners=SASL_PLAINTEXT://:9094\nsasl.enabled.mechanisms=OAUTHBEARER\n{pairs}");
    let problem = only_problem(load(&from_file("server.properties", &open)));
    assert!(
        problem.contains("oauth.tokens.without.tls=true allows it"),
        "{problem}"
    );
    load(&from_file(
        "s.properties",
        &format!("{open}oauth.tokens.without.tls=true\n"),
    ))
    .unwrap();
}

#[test]
fn half_of_sasl_is_refused() {
    const JAAS: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    for (more, told) in [
        ("sasl.enabled.mechanisms=GSSAPI".to_owned(), "Kerberos"),
        (
            "sasl.enabled.mechanisms=plain".to_owned(),
            "use some of PLAIN",
        ),
        (
            "sasl.enabled.mechanisms=,".to_owned(),
            "no mechanism is named",
        ),
        (
            "sasl.enabled.mechanisms=PLAIN".to_owned(),
            "auth.plain.without.tls=true",
        ),
        (
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN".to_owned(),
            "auth.plain.without.tls",
        ),
        (
            "listener.name.inside.sasl.enabled.mechanisms=PLAIN".to_owned(),
            "not there",
        ),
        (
            format!("listener.name.out.plain.sasl.jaas.config={JAAS} user_a=\"hunter2\";"),
            "does not speak PLAIN",
        ),
        (
            "listener.name.out.plain.sasl.jaas.config=x.Y required user_a=\"hunter2\";".to_owned(),
            "no classes",
        ),
        (
            format!("sasl.jaas.config={JAAS} user_a=\"hunter2\";"),
            "listener.name.NAME",
        ),
        (
            "listener.name.out.gssapi.sasl.jaas.config=x".to_owned(),
            "take it out",
        ),
        (
            "listener.name.out.plain.sasl.server.callback.handler.class=hunter2".to_owned(),
            "take it out",
        ),
        (
            "sasl.server.callback.handler.class=hunter2".to_owned(),
            "no classes",
        ),
        (
            "sasl.enabled.mechanism=PLAIN".to_owned(),
            "did you mean sasl.enabled.mechanisms?",
        ),
        (
            "connections.max.reauth.ms=soon".to_owned(),
            "cannot have this value",
        ),
        (
            "listener.name.out.connections.max.reauth.ms=soon".to_owned(),
            "no time",
        ),
        ("auth.users=hunter2".to_owned(), "NAME:PASSWORD"),
        ("auth.users=a:hunter2,a:hunter2".to_owned(), "again"),
    ] {
        let problem = only_problem(load(&from_file(
            "server.properties",
            &format!("{SASL}{more}\n"),
        )));
        assert!(problem.contains(told), "{more}: {problem}");
        assert!(!problem.contains("hunter2"), "{more}: {problem}");
    }
    // Without a listener that asks, none of it protects anything.
    for more in [
        "sasl.enabled.mechanisms=PLAIN",
        "auth.users=a:b",
        "auth.users.file=/u",
        "connections.max.reauth.ms=5",
    ] {
        let problem = only_problem(load(&from_file("server.properties", &format!("{more}\n"))));
        assert!(
            problem.contains("asks anybody who they are"),
            "{more}: {problem}"
        );
    }
    let jaas =
        format!("listener.name.plaintext.plain.sasl.jaas.config={JAAS} user_a=\"hunter2\";\n");
    assert!(only_problem(load(&from_file("s.properties", &jaas))).contains("speaks PLAINTEXT"));
    // A migrated file may say how brokers log in at each other, and what else nobody asks for here.
    for more in [
        "sasl.mechanism.inter.broker.protocol=PLAIN".to_owned(),
        "sasl.kerberos.service.name=kafka".to_owned(),
        "listener.name.out.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"a\" password=\"b\";".to_owned(),
        format!("listener.name.out.sasl.enabled.mechanisms=PLAIN\nlistener.name.out.plain.sasl.jaas.config={JAAS} user_a=\"b\";"),
    ] {
        load(&from_file("server.properties", &format!("{SASL}{more}\n"))).unwrap();
    }
}

#[test]
fn passwords_are_shown_nowhere() {
    let text = format!(
        "{SASL}auth.users=alice:hunter2,bob:hunter3\nlistener.name.out.sasl.enabled.mechanisms=PLAIN\n\
         listener.name.out.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"hunter4\";\n"
    );
    let loaded = load(&from_file("server.properties", &text)).unwrap();
    let shown = format!("{loaded:?}");
    assert!(!shown.contains("hunter"), "{shown}");
    let users = loaded.settings.auth_users.as_ref().unwrap().expose();
    assert_eq!(tidemark_config::users_of_text(users).unwrap().len(), 2);
    let out = loaded.settings.listeners[1].sasl.as_ref().unwrap();
    assert_eq!(out.plain_users["a"].expose(), "hunter4");
    assert!(!loaded.notes.iter().any(|note| note.contains("hunter")));
    for (row, value, _) in loaded.settings.values.explain() {
        assert!(!row.sensitive || value.is_none());
    }
    for entry in loaded.settings.describe_broker_configs() {
        assert!(
            entry.value.is_none_or(|value| !value.contains("hunter")),
            "{}",
            entry.name
        );
    }
}

#[test]
fn one_data_directory_has_several_names() {
    let dir = |text: &str| load(&from_file("s.properties", text)).map(|l| l.settings.data_dir);
    assert_eq!(dir("data.dir=/a\n").unwrap(), Path::new("/a"));
    assert_eq!(dir("log.dir=/b\n").unwrap(), Path::new("/b"));
    // As in Kafka, whichever stands first.
    assert_eq!(dir("log.dirs=/c\nlog.dir=/b\n").unwrap(), Path::new("/c"));
    assert_eq!(dir("log.dir=/b\nlog.dirs=/c\n").unwrap(), Path::new("/c"));
    // The last one of a name wins.
    assert_eq!(dir("log.dirs=/c\nlog.dirs=/d\n").unwrap(), Path::new("/d"));
    let error = dir("log.dirs=/a,/b\n").unwrap_err().to_string();
    assert!(
        error.contains("log.dirs=/a,/b") && error.contains("name one"),
        "{error}"
    );

    let mut inputs = from_file("s.properties", "log.dirs=/c\n");
    inputs.flags = pairs(&[("data-dir", "/f")]);
    assert_eq!(load(&inputs).unwrap().settings.data_dir, Path::new("/f"));
}

#[test]
fn broker_settings_become_the_topics_defaults() {
    let text = "log.retention.minutes=2\nlog.cleanup.policy=compact\nmessage.max.bytes=2000\n";
    let settings = load(&from_file("s.properties", text)).unwrap().settings;
    let config = settings.topic_defaults.config();
    assert_eq!(config.retention_ms, 120_000);
    assert!(config.cleanup_policy.compact && !config.cleanup_policy.delete);
    assert_eq!(config.max_message_bytes, 2000);
}

#[test]
fn the_listen_flag_is_a_listener() {
    let bind = |address: &str| {
        let inputs = from_flags(&[("listen", address)]);
        load(&inputs).unwrap().settings.listeners[0]
            .bind
            .to_string()
    };
    assert_eq!(bind("0.0.0.0:19092"), "0.0.0.0:19092");
    assert_eq!(bind("[::1]:0"), "[::1]:0");
    assert_eq!(bind(":9092"), ":9092");
}

#[test]
fn leases_and_exclusive_operations_are_kafkas_unless_set() {
    let settings = Settings::default();
    assert_eq!(settings.transaction_lease_mode, TransactionLease::Start);
    let none = ExclusiveOperations::default();
    assert_eq!(settings.transaction_exclusive_operations, none);
    let inputs = from_file(
        "server.properties",
        "transaction.lease.mode=renew\n\
         transaction.exclusive.operations=DeleteRecords, cleanup.policy\n",
    );
    let settings = load(&inputs).unwrap().settings;
    assert_eq!(settings.transaction_lease_mode, TransactionLease::Renewed);
    let some = ExclusiveOperations {
        delete_records: true,
        create_partitions: false,
        cleanup_policy: true,
    };
    assert_eq!(settings.transaction_exclusive_operations, some);
    let inputs = from_file(
        "server.properties",
        "transaction.exclusive.operations=deleterecords\n",
    );
    let refused = load(&inputs).unwrap_err().to_string();
    assert!(refused.contains("DeleteRecords"), "{refused}");
}

/// Kafka's configuration providers read files and variables named in a value; where a client may set
/// values, it reads them too. Here a value is its text, from whatever source.
#[test]
fn cve_2019_12399_a_value_is_text_and_nothing_in_it_is_expanded() {
    let text = "${env:HOME}/${file:/etc/passwd:root}/$HOME/%h";
    let file = format!("log.dirs={text}\nconfig.providers=env,file\n");
    let toml = format!("data-dir = \"{text}\"\n");
    for inputs in [
        from_file("server.properties", &format!("log.dirs={text}\n")),
        from_file("tidemark.toml", &toml),
        from_env(&[("TIDEMARK_DATA_DIR", text)]),
        from_flags(&[("data-dir", text)]),
    ] {
        let loaded = load(&inputs).expect("it is a directory's name");
        assert_eq!(loaded.settings.data_dir, Path::new(text));
    }
    // A file that relies on providers does not start as if it had none.
    let loaded = load(&from_file("server.properties", &file));
    if let Ok(loaded) = loaded {
        assert_eq!(loaded.settings.data_dir, Path::new(text));
    }
}
