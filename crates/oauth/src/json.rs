//! JSON from strangers: an object with a name twice is refused, because two readers would believe two
//! different things; and so is what is nested deeper than anything of use.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Claims of identity providers have a depth of four or so.
const MAX_DEPTH: u8 = 16;

pub(crate) enum Json {
    Null,
    Bool,
    /// With the precision that seconds since 1970 need.
    Number(f64),
    String(String),
    Array(Vec<Json>),
    Object(Object),
}

pub(crate) type Object = BTreeMap<String, Json>;

/// An object and nothing behind it. The reason why not says nothing of the text.
pub(crate) fn object(text: &[u8]) -> Result<Object, &'static str> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Depth(0).deserialize(&mut reader);
    match (value, reader.end()) {
        (Ok(Json::Object(object)), Ok(())) => Ok(object),
        (Ok(_), Ok(())) => Err("it is no JSON object"),
        (Err(e), _) if e.to_string().starts_with(TWICE) => Err(TWICE),
        (Err(e), _) if e.to_string().starts_with(TOO_DEEP) => Err(TOO_DEEP),
        _ => Err("it is no JSON"),
    }
}

const TWICE: &str = "a JSON object has a name twice";
const TOO_DEEP: &str = "its JSON is nested too deeply";

impl Json {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// The strings of an array of nothing else.
    pub(crate) fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Json::Array(items) => items.iter().map(Json::text).collect(),
            _ => None,
        }
    }
}

/// How many arrays and objects are around.
#[derive(Clone, Copy)]
struct Depth(u8);

impl Depth {
    fn deeper<E: de::Error>(self) -> Result<Depth, E> {
        match self.0 < MAX_DEPTH {
            true => Ok(Depth(self.0 + 1)),
            false => Err(E::custom(TOO_DEEP)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Json, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Depth {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let deeper = self.deeper()?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(deeper)? {
            all.push(item);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Json, A::Error> {
        let deeper = self.deeper()?;
        let mut all = Object::new();
        while let Some(name) = pairs.next_key::<String>()? {
            let value = pairs.next_value_seed(deeper)?;
            if all.insert(name, value).is_some() {
                return Err(de::Error::custom(TWICE));
            }
        }
        Ok(Json::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read() {
        let read = object(br#" {"a":"x","b":["y","z"],"c":1.5,"d":{"e":null},"f":true} "#).unwrap();
        assert_eq!(read["a"].text(), Some("x"));
        assert_eq!(read["b"].texts(), Some(vec!["y", "z"]));
        assert!(matches!(read["c"], Json::Number(1.5)));
        assert!(read["f"].text().is_none());
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for text in [
            r#"{"sub":"a","sub":"b"}"#,
            r#"{"x":{"sub":"a","sub":"b"}}"#,
            r#"{"sub":"a","\u0073ub":"b"}"#,
        ] {
            assert_eq!(object(text.as_bytes()).err(), Some(TWICE), "{text}");
        }
    }

    #[test]
    fn depth_has_an_end() {
        let nested = |n: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(n), "]".repeat(n));
        assert!(object(nested(15).as_bytes()).is_ok());
        assert_eq!(object(nested(16).as_bytes()).err(), Some(TOO_DEEP));
        assert_eq!(object(nested(4000).as_bytes()).err(), Some(TOO_DEEP));
    }

    #[test]
    fn anything_else_is_no_object() {
        for text in [
            &b""[..],
            b"{",
            b"[]",
            b"1",
            b"{} x",
            b"{}{}",
            b"{\"a\":1,}",
            b"{'a':1}",
            b"{\"a\":NaN}",
            b"{\"a\":\"\\ud800\"}",
            b"{\"a\":\"\xff\"}",
            b"\xef\xbb\xbf{}",
            b"{\"a\":1e999}",
        ] {
            assert!(
                object(text).is_err(),
                "{:?}",
                text.escape_ascii().to_string()
            );
        }
    }
}
