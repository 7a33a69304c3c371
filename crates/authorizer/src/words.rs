//! Kafka's words of an ACL, with their numbers on the wire and on disk.

use std::fmt;

macro_rules! words {
    ($(#[$attr:meta])* $name:ident { $($(#[$vattr:meta])* $variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$attr])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vattr])* $variant = $code,)*
        }

        impl $name {
            /// Every one, in the order of the numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Kafka's number.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The one of a number; `None` for a number that means none, or no certain one.
            pub const fn from_code(code: u8) -> Option<$name> {
                match code {
                    $($code => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// Kafka's name, as its tools write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

words! {
    /// What an ACL is about.
    ResourceType {
        Topic = 2 "Topic",
        Group = 3 "Group",
        /// There is one, [`crate::CLUSTER_NAME`].
        Cluster = 4 "Cluster",
        TransactionalId = 5 "TransactionalId",
        DelegationToken = 6 "DelegationToken",
        User = 7 "User",
    }
}

words! {
    /// What a principal does with a resource.
    Operation {
        /// In ACLs only: each of the others.
        All = 2 "All",
        Read = 3 "Read",
        Write = 4 "Write",
        Create = 5 "Create",
        Delete = 6 "Delete",
        Alter = 7 "Alter",
        Describe = 8 "Describe",
        ClusterAction = 9 "ClusterAction",
        DescribeConfigs = 10 "DescribeConfigs",
        AlterConfigs = 11 "AlterConfigs",
        IdempotentWrite = 12 "IdempotentWrite",
        CreateTokens = 13 "CreateTokens",
        DescribeTokens = 14 "DescribeTokens",
        TwoPhaseCommit = 15 "TwoPhaseCommit",
    }
}

words! {
    /// How the name of an ACL's resource is meant.
    PatternType {
        /// This name; [`crate::WILDCARD`] is every name.
        Literal = 3 "Literal",
        /// Every name that begins so.
        Prefixed = 4 "Prefixed",
    }
}

words! {
    /// What an ACL does to what it fits.
    Permission {
        /// Wins over whatever allows.
        Deny = 2 "Deny",
        Allow = 3 "Allow",
    }
}

impl Operation {
    /// True if an ACL that allows `self` allows `asked`. Who may read, write, delete or alter
    /// something may describe it, and who may alter its configuration may see it. (What denies
    /// denies only what it names, or everything.)
    pub const fn allows(self, asked: Operation) -> bool {
        match (self, asked) {
            (Operation::All, _) => true,
            (
                Operation::Read | Operation::Write | Operation::Delete | Operation::Alter,
                Operation::Describe,
            ) => true,
            (Operation::AlterConfigs, Operation::DescribeConfigs) => true,
            _ => self as u8 == asked as u8,
        }
    }

    /// True if an ACL that denies `self` denies `asked`.
    pub const fn denies(self, asked: Operation) -> bool {
        matches!(self, Operation::All) || self as u8 == asked as u8
    }
}
