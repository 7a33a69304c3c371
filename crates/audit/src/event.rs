//! What a line of the audit log tells. The names of the fields in the file are those here.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

/// Text of clients is cut to this many bytes: nothing in a line is sized by the wire.
const MAX_TEXT_BYTES: usize = 512;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The broker began to serve.
    Start,
    /// It ended in order, or because it could not go on.
    Stop,
    /// A request asked for a resource, and was let or not.
    Access,
    /// A client said who it is.
    Authentication,
    /// A client did not get through its TLS handshake.
    TlsRefused,
    /// A connection was closed for what it sent, or for a limit.
    ConnectionRefused,
    /// A transaction was aborted by somebody else than its client.
    TransactionAborted,
    /// A session of a transactional id ended an earlier one.
    ProducerFenced,
    /// Topics, records, settings, groups, ACLs or credentials were changed.
    Change,
    /// The first line of a file.
    Opened,
    /// A start found an end that was not whole, or did not follow.
    Recovered,
    /// Events before this line were lost.
    Lost,
    /// The oldest files were removed.
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Allowed,
    Denied,
    Succeeded,
    Failed,
}

/// Where a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub principal: Option<Arc<str>>,
    pub address: Option<IpAddr>,
    pub client_id: Option<Arc<str>>,
    pub listener: Option<Arc<str>>,
}

/// One event. What does not apply is left out of the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    #[serde(rename = "event")]
    pub kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Who: `User:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_type: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Cow<'static, str>>,
    /// The name that a client gave and could not prove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactional_id: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i16>,
    /// Whose action it was that this event befell the principal by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Cow<'static, str>>,
    /// What was changed, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// How many events like this the line stands for, where it is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl Event {
    pub fn new(kind: Kind) -> Event {
        Event {
            kind,
            outcome: None,
            principal: None,
            address: None,
            client_id: None,
            listener: None,
            api: None,
            operation: None,
            resource_type: None,
            resource: None,
            mechanism: None,
            claimed: None,
            transactional_id: None,
            producer_id: None,
            epoch: None,
            by: None,
            change: None,
            reason: None,
            count: None,
        }
    }

    pub fn outcome(mut self, outcome: Outcome) -> Event {
        self.outcome = Some(outcome);
        self
    }

    pub fn of(mut self, origin: &Origin) -> Event {
        self.principal = origin.principal.as_deref().map(clip);
        self.address = origin
            .address
            .map(|ip| Cow::Owned(ip.to_canonical().to_string()));
        self.client_id = origin.client_id.as_deref().map(clip);
        self.listener = origin.listener.as_deref().map(clip);
        self
    }

    pub fn principal(mut self, principal: &str) -> Event {
        self.principal = Some(clip(principal));
        self
    }

    pub fn client_id(mut self, client_id: &str) -> Event {
        self.client_id = Some(clip(client_id));
        self
    }

    /// As Kafka shows it, `/127.0.0.1`, or without the slash.
    pub fn host(mut self, host: &str) -> Event {
        self.address = Some(clip(host.trim_start_matches('/')));
        self
    }

    pub fn api(mut self, api: impl Into<Cow<'static, str>>) -> Event {
        self.api = Some(api.into());
        self
    }

    pub fn operation(mut self, operation: impl Into<Cow<'static, str>>) -> Event {
        self.operation = Some(operation.into());
        self
    }

    pub fn resource(mut self, kind: impl Into<Cow<'static, str>>, name: &str) -> Event {
        self.resource_type = Some(kind.into());
        self.resource = Some(clip(name));
        self
    }

    pub fn mechanism(mut self, mechanism: &str) -> Event {
        self.mechanism = Some(clip(mechanism));
        self
    }

    pub fn claimed(mut self, name: &str) -> Event {
        self.claimed = Some(clip(name));
        self
    }

    pub fn producer(mut self, transactional_id: &str, producer_id: i64, epoch: i16) -> Event {
        self.transactional_id = Some(clip(transactional_id));
        self.producer_id = Some(producer_id);
        self.epoch = Some(epoch);
        self
    }

    pub fn by(mut self, by: &str) -> Event {
        self.by = Some(clip(by));
        self
    }

    pub fn change(mut self, change: &str) -> Event {
        self.change = Some(clip(change));
        self
    }

    pub fn reason(mut self, reason: &str) -> Event {
        self.reason = Some(clip(reason));
        self
    }

    /// Refusals that a client can cause as often as it likes: the first is a line at once, those that
    /// repeat it are counted.
    pub(crate) fn may_repeat(&self) -> bool {
        match self.kind {
            Kind::TlsRefused | Kind::ConnectionRefused => true,
            Kind::Access | Kind::Authentication => {
                matches!(self.outcome, Some(Outcome::Denied | Outcome::Failed))
            }
            _ => false,
        }
    }

    /// The event without what differs from one to the next: where one client, or all together, cause
    /// more of them than can be told.
    pub(crate) fn without(self, detail: Detail) -> Event {
        let reason = "more than are told one by one";
        let kept = Event {
            principal: self.principal,
            address: self.address,
            outcome: self.outcome,
            ..Event::new(self.kind)
        };
        let kept = match detail {
            Detail::What => kept,
            Detail::Who => Event {
                principal: None,
                address: None,
                ..kept
            },
        };
        kept.reason(reason)
    }

    /// What makes one event a repeat of another: everything but the client's id, which it can change
    /// at will.
    pub(crate) fn hash_repeat(&self, state: &mut impl Hasher) {
        self.kind.hash(state);
        self.outcome.hash(state);
        for text in [
            &self.principal,
            &self.address,
            &self.listener,
            &self.api,
            &self.operation,
            &self.resource_type,
            &self.resource,
            &self.mechanism,
            &self.claimed,
            &self.reason,
        ] {
            text.hash(state);
        }
    }
}

/// What is left out of events that are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What was asked for, and how.
    What,
    /// And by whom.
    Who,
}

/// At most [`MAX_TEXT_BYTES`] of a text, and how long it was.
fn clip(text: &str) -> Cow<'static, str> {
    if text.len() <= MAX_TEXT_BYTES {
        return Cow::Owned(text.to_owned());
    }
    let mut end = MAX_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}... ({} bytes)", &text[..end], text.len()))
}

/// Milliseconds since 1970 as `2026-01-31T23:59:59.999Z`.
pub(crate) fn time_text(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = date(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The Gregorian date of a day since 1970, by eras of 400 years that begin with March.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(time_text(ms), text);
        }
        // Every day of eight centuries follows the one before.
        let mut before = date(-150_000);
        for day in -149_999..150_000 {
            let today = date(day);
            assert!(today > before, "{before:?} {today:?}");
            before = today;
        }
    }

    #[test]
    fn text_of_clients_is_bounded() {
        let long = "ä".repeat(100_000);
        let event = Event::new(Kind::Access)
            .resource("Topic", &long)
            .client_id(&long);
        let line = serde_json::to_string(&event).unwrap();
        assert!(line.len() < 2 * MAX_TEXT_BYTES + 300, "{}", line.len());
        assert!(line.contains("(200000 bytes)"));
    }
}
