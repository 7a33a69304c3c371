//! Random request bodies, written from the schema.
//!
//! The generator knows nothing of the codec: it writes what the rows say. A row that is wrong shows
//! when the codec cannot read what was written.
#![allow(dead_code)]

use tidemark_wire::schema::{self, Field, Kind, Struct};
use tidemark_wire::{ApiKey, ApiTable};

/// A body, and where its counts and lengths stand.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    pub lengths: Vec<LengthAt>,
}

/// The place of a count or a length.
#[derive(Clone, Copy, Debug)]
pub struct LengthAt {
    pub position: usize,
    pub form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Int16,
    Int32,
    /// A varint of this many bytes.
    Varint(usize),
}

impl Body {
    /// The body with one length replaced by the largest its form can claim.
    pub fn with_largest(&self, at: LengthAt) -> Vec<u8> {
        let (width, largest): (usize, &[u8]) = match at.form {
            Form::Int16 => (2, &[0x7f, 0xff]),
            Form::Int32 => (4, &[0x7f, 0xff, 0xff, 0xff]),
            Form::Varint(width) => (width, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        };
        self.replaced(at.position, width, largest)
    }

    /// The body with one length or count made one larger than what is left after it.
    pub fn with_one_too_many(&self, at: LengthAt) -> Vec<u8> {
        let width = match at.form {
            Form::Int16 => 2,
            Form::Int32 => 4,
            Form::Varint(width) => width,
        };
        let left = self.bytes.len() - at.position - width;
        let claim = match at.form {
            Form::Int16 => (left as i16 + 1).to_be_bytes().to_vec(),
            Form::Int32 => (left as i32 + 1).to_be_bytes().to_vec(),
            Form::Varint(_) => {
                let mut claim = Vec::new();
                put_varint(&mut claim, left as u32 + 2);
                claim
            }
        };
        self.replaced(at.position, width, &claim)
    }

    fn replaced(&self, position: usize, width: usize, with: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes[..position].to_vec();
        bytes.extend_from_slice(with);
        bytes.extend_from_slice(&self.bytes[position + width..]);
        bytes
    }
}

/// Every known API with every version that is decoded.
pub fn every_version() -> impl Iterator<Item = (ApiKey, i16)> {
    ApiTable::all().flat_map(|api| api.decodes.iter().map(|version| (api.key, version)))
}

/// A small generator of numbers (splitmix64): one seed, one body.
pub struct Choices(pub u64);

impl Choices {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// How full a body is.
#[derive(Clone, Copy)]
pub enum Fill {
    /// Nulls, empty arrays and tagged fields at random.
    Random,
    /// No null, at least one element everywhere, every known tagged field and an unknown one.
    Full,
    /// As `Full`, but the field with this number is null, whether it may be or not. Numbers count
    /// strings, bytes and arrays in wire order.
    FullButNull(usize),
}

/// The header of a request frame, without its size.
pub fn header(key: ApiKey, version: i16, correlation_id: i32, client_id: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&key.code().to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&correlation_id.to_be_bytes());
    match client_id {
        Some(id) => {
            out.extend_from_slice(&(id.len() as i16).to_be_bytes());
            out.extend_from_slice(id.as_bytes());
        }
        None => out.extend_from_slice(&(-1i16).to_be_bytes()),
    }
    if key.request_header_version(version) >= 2 {
        out.push(0);
    }
    out
}

/// A body of an API at a version.
pub fn body(key: ApiKey, version: i16, fill: Fill, choices: &mut Choices) -> Body {
    let mut writer = Writer {
        out: Body {
            bytes: Vec::new(),
            lengths: Vec::new(),
        },
        version,
        flexible: key.is_flexible(version),
        fill,
        fields_written: 0,
        choices,
    };
    writer.fields(schema::request(key));
    writer.out
}

struct Writer<'a> {
    out: Body,
    version: i16,
    flexible: bool,
    fill: Fill,
    /// Strings, bytes and arrays so far, for `FullButNull`.
    fields_written: usize,
    choices: &'a mut Choices,
}

impl Writer<'_> {
    fn fields(&mut self, schema: &Struct) {
        for field in schema.fields_of(self.version) {
            self.field(field);
        }
        if self.flexible {
            self.tagged_fields(schema);
        }
    }

    fn field(&mut self, field: &Field) {
        let null = match self.fill {
            Fill::Random => field.nullable && self.choices.one_in(3),
            Fill::Full => false,
            Fill::FullButNull(number) => {
                !matches!(field.kind, Kind::Fixed(_) | Kind::Struct(_)) && {
                    self.fields_written += 1;
                    self.fields_written == number + 1
                }
            }
        };
        self.value(field.kind, null);
    }

    fn value(&mut self, kind: Kind, null: bool) {
        match kind {
            Kind::Struct(schema) => return self.fields(schema),
            Kind::Fixed(1) => {
                // Also booleans, which the codec reads as "not zero".
                let byte = self.choices.below(2) as u8;
                return self.out.bytes.push(byte);
            }
            Kind::Fixed(width) => {
                for _ in 0..width {
                    let byte = self.choices.next() as u8;
                    self.out.bytes.push(byte);
                }
                return;
            }
            Kind::String | Kind::Bytes | Kind::Array(_) => {}
        }
        if null {
            return self.length(kind, -1);
        }
        let n = match self.fill {
            Fill::Random => self.choices.below(4),
            Fill::Full | Fill::FullButNull(_) => 1 + self.choices.below(2),
        };
        // Now and then long enough for a varint of two bytes.
        let long = matches!(self.fill, Fill::Random) && self.choices.one_in(16);
        match kind {
            Kind::Array(element) => {
                self.length(kind, n as i64);
                for _ in 0..n {
                    self.value(element.kind(), false);
                }
            }
            _ => {
                let n = if long { 200 + n } else { n };
                self.length(kind, n as i64);
                for _ in 0..n {
                    let letter = b'a' + self.choices.below(26) as u8;
                    self.out.bytes.push(letter);
                }
            }
        }
    }

    fn length(&mut self, kind: Kind, length: i64) {
        let position = self.out.bytes.len();
        let form = match (kind, self.flexible) {
            (_, true) => {
                let value = u32::try_from(length + 1).unwrap();
                Form::Varint(put_varint(&mut self.out.bytes, value))
            }
            (Kind::String, false) => {
                let value = i16::try_from(length).unwrap();
                self.out.bytes.extend_from_slice(&value.to_be_bytes());
                Form::Int16
            }
            (_, false) => {
                let value = i32::try_from(length).unwrap();
                self.out.bytes.extend_from_slice(&value.to_be_bytes());
                Form::Int32
            }
        };
        self.out.lengths.push(LengthAt { position, form });
    }

    fn tagged_fields(&mut self, schema: &Struct) {
        let full = !matches!(self.fill, Fill::Random);
        let known: Vec<_> = schema
            .tagged
            .iter()
            .filter(|known| known.field.versions.contains(self.version))
            .filter(|_| full || self.choices.one_in(2))
            .collect();
        let unknown = full || self.choices.one_in(3);
        let count = known.len() + usize::from(unknown);
        self.raw_length(count as u32);
        for known in known {
            put_varint(&mut self.out.bytes, known.tag);
            // The size comes before the content: write the content apart, then put it in place.
            let outer = std::mem::replace(
                &mut self.out,
                Body {
                    bytes: Vec::new(),
                    lengths: Vec::new(),
                },
            );
            self.field(&known.field);
            let content = std::mem::replace(&mut self.out, outer);
            self.raw_length(content.bytes.len() as u32);
            let start = self.out.bytes.len();
            self.out.bytes.extend_from_slice(&content.bytes);
            self.out
                .lengths
                .extend(content.lengths.iter().map(|at| LengthAt {
                    position: start + at.position,
                    form: at.form,
                }));
        }
        if unknown {
            put_varint(&mut self.out.bytes, 1000);
            self.raw_length(3);
            self.out.bytes.extend_from_slice(b"new");
        }
    }

    /// A varint that is not one more than its value.
    fn raw_length(&mut self, value: u32) {
        let position = self.out.bytes.len();
        let width = put_varint(&mut self.out.bytes, value);
        self.out.lengths.push(LengthAt {
            position,
            form: Form::Varint(width),
        });
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u32) -> usize {
    let start = out.len();
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out.len() - start
}
