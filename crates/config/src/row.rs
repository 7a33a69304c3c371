//! What is said of a setting: its names, its values, where it belongs.

use std::borrow::Cow;

use tidemark_metadata::{Check, Kind};

/// The part of the documents that a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Identity,
    Listeners,
    Tls,
    Sasl,
    Authorisation,
    Limits,
    Topics,
    Transactions,
    Groups,
    Journal,
    TopicDefaults,
    Audit,
    Diagnostics,
}

impl Section {
    pub const ALL: [Section; 13] = [
        Section::Identity,
        Section::Listeners,
        Section::Tls,
        Section::Sasl,
        Section::Authorisation,
        Section::Limits,
        Section::Topics,
        Section::Transactions,
        Section::Groups,
        Section::Journal,
        Section::TopicDefaults,
        Section::Audit,
        Section::Diagnostics,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Section::Identity => "Identity and data",
            Section::Listeners => "Listeners",
            Section::Tls => "TLS, on listeners whose protocol is SSL or SASL_SSL",
            Section::Sasl => "SASL, on listeners whose protocol is SASL_SSL or SASL_PLAINTEXT",
            Section::Authorisation => "Authorisation",
            Section::Limits => "Connections and requests",
            Section::Topics => "Topics",
            Section::Transactions => "Producers and transactions",
            Section::Groups => "Consumer groups",
            Section::Journal => "Journal, memory and recovery",
            Section::TopicDefaults => "What topics get that set nothing themselves",
            Section::Audit => "Audit log",
            Section::Diagnostics => "Diagnostics",
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Kafka's name where Kafka has the setting.
    pub name: &'static str,
    /// Other names for the same setting. In one source, an earlier name wins over a later one and
    /// `name` over all.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    /// None: there is no value where none is set.
    pub default: Option<Cow<'static, str>>,
    pub check: Check,
    /// Kafka has a setting of this name.
    pub kafka: bool,
    /// It can be changed while the broker runs.
    pub dynamic: bool,
    /// Its value is never shown.
    pub sensitive: bool,
    pub section: Section,
    pub doc: Cow<'static, str>,
}

impl Row {
    pub(crate) fn new(name: &'static str, kind: Kind, default: &'static str, check: Check) -> Row {
        Row {
            name,
            aliases: &[],
            kind,
            default: Some(Cow::Borrowed(default)),
            check,
            kafka: false,
            dynamic: false,
            sensitive: false,
            section: Section::Identity,
            doc: Cow::Borrowed(""),
        }
    }

    pub(crate) fn without_default(mut self) -> Row {
        self.default = None;
        self
    }

    pub(crate) fn aliases(mut self, aliases: &'static [&'static str]) -> Row {
        self.aliases = aliases;
        self
    }

    /// Kafka has this setting too.
    pub(crate) fn kafka(mut self) -> Row {
        self.kafka = true;
        self
    }

    /// It can be changed while the broker runs.
    pub(crate) fn dynamic(mut self) -> Row {
        self.dynamic = true;
        self
    }

    /// Its value is shown nowhere.
    pub(crate) fn sensitive(mut self) -> Row {
        self.sensitive = true;
        self
    }

    pub(crate) fn at(mut self, section: Section) -> Row {
        self.section = section;
        self
    }

    pub(crate) fn doc(mut self, doc: &'static str) -> Row {
        self.doc = Cow::Borrowed(doc);
        self
    }

    /// Its names, the strongest first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The environment variable of one of its names.
    pub fn env(name: &str) -> String {
        format!("TIDEMARK_{}", name.to_ascii_uppercase().replace('.', "_"))
    }

    /// The flag of one of its names, without dashes in front.
    pub fn flag(name: &str) -> String {
        name.replace('.', "-")
    }

    /// The values it takes, in words.
    pub fn range(&self) -> String {
        let check = self.check.to_string();
        match self.kind {
            Kind::Boolean => "true, false".to_owned(),
            kind if check.is_empty() => kind.name().to_owned(),
            _ => check,
        }
    }
}

pub(crate) fn int(name: &'static str, default: &'static str, check: Check) -> Row {
    Row::new(name, Kind::Int, default, check)
}

pub(crate) fn long(name: &'static str, default: &'static str, check: Check) -> Row {
    Row::new(name, Kind::Long, default, check)
}

pub(crate) fn boolean(name: &'static str, default: &'static str) -> Row {
    Row::new(name, Kind::Boolean, default, Check::Any)
}

pub(crate) fn string(name: &'static str, default: &'static str) -> Row {
    string_of(name, default, Check::Any)
}

pub(crate) fn string_of(name: &'static str, default: &'static str, check: Check) -> Row {
    Row::new(name, Kind::String, default, check)
}

pub(crate) fn list(name: &'static str, default: &'static str, check: Check) -> Row {
    Row::new(name, Kind::List, default, check)
}
