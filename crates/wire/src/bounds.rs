//! The walker: does a request body fit its schema and its frame?
//!
//! It runs before the codec, whose decoders reserve memory from claimed counts. A body that passes
//! holds every element it claims, so what the codec reserves is bounded by bytes the client sent,
//! and by [`MAX_ELEMENTS`]. The walk allocates nothing and its depth is that of the schema.

use crate::api::ApiKey;
use crate::error::{BodyFault, WireError};
use crate::reader::Reader;
use crate::schema::{self, Field, Kind, Struct};

/// Most array elements and tagged fields of one request, over all arrays.
///
/// An element of one to three bytes can take more than 100 bytes decoded, so that a frame within
/// the size limit could still ask for gigabytes. With this bound a request takes some 25 MB besides
/// its frame at most. A request that names every partition of a very large cluster passes.
pub const MAX_ELEMENTS: usize = 200_000;

/// Walks a request body and refuses what does not fit. Returns the bytes of the body: what follows
/// them is not part of the request, and is accepted.
///
/// What passes, the codec decodes: strings are UTF-8, nothing is null that may not be.
///
/// `api_version` must be one that [`crate::api::Api::decodes`] has; any other is refused.
pub fn check_request(api_key: ApiKey, api_version: i16, body: &[u8]) -> Result<usize, WireError> {
    if !api_key.api().decodes.contains(api_version) {
        return Err(WireError::UnsupportedVersion {
            api_key,
            api_version,
        });
    }
    let mut walk = Walk {
        reader: Reader::new(body),
        version: api_version,
        flexible: api_key.is_flexible(api_version),
        elements_left: MAX_ELEMENTS,
    };
    match walk.fields(schema::request(api_key)) {
        Ok(()) => Ok(walk.reader.position()),
        Err(Refused { field, fault }) => Err(WireError::Body {
            api_key,
            api_version,
            field,
            fault,
        }),
    }
}

struct Walk<'a> {
    reader: Reader<'a>,
    version: i16,
    flexible: bool,
    elements_left: usize,
}

struct Refused {
    field: &'static str,
    fault: BodyFault,
}

impl Walk<'_> {
    fn fields(&mut self, schema: &'static Struct) -> Result<(), Refused> {
        for field in schema.fields_of(self.version) {
            self.field(field)?;
        }
        if self.flexible {
            self.tagged_fields(schema)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &'static Field) -> Result<(), Refused> {
        self.value(field.name, field.kind, field.nullable)
    }

    fn value(&mut self, name: &'static str, kind: Kind, nullable: bool) -> Result<(), Refused> {
        let refused = |fault| Refused { field: name, fault };
        let length = match kind {
            Kind::Fixed(bytes) => {
                self.reader.take(bytes).map_err(refused)?;
                return Ok(());
            }
            Kind::Struct(schema) => return self.fields(schema),
            Kind::String => self.reader.string_length(self.flexible),
            Kind::Bytes => self.reader.bytes_length(self.flexible),
            Kind::Array(element) => {
                let min_bytes = element.kind().min_bytes(self.version, self.flexible);
                self.reader.array_count(self.flexible, min_bytes)
            }
        };
        let Some(length) = length.map_err(refused)? else {
            return match nullable {
                true => Ok(()),
                false => Err(refused(BodyFault::UnexpectedNull)),
            };
        };
        match kind {
            Kind::Array(element) => {
                self.count_elements(length).map_err(refused)?;
                for _ in 0..length {
                    self.value(name, element.kind(), false)?;
                }
            }
            Kind::String => {
                let text = self.reader.take(length).map_err(refused)?;
                std::str::from_utf8(text).map_err(|_| refused(BodyFault::NotUtf8))?;
            }
            _ => {
                self.reader.take(length).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Unknown tags are opaque. Known ones are walked, because the codec decodes them without
    /// asking their size; the size must then be that of the content.
    fn tagged_fields(&mut self, schema: &'static Struct) -> Result<(), Refused> {
        const SECTION: &str = "tagged fields";
        let refused = |fault| Refused {
            field: SECTION,
            fault,
        };
        let count = self.reader.unsigned_varint().map_err(refused)? as usize;
        // A tagged field has at least a byte of tag and a byte of size.
        if count > self.reader.left() / 2 {
            return Err(refused(BodyFault::CountBeyondFrame));
        }
        self.count_elements(count).map_err(refused)?;
        for _ in 0..count {
            let tag = self.reader.unsigned_varint().map_err(refused)?;
            let size = self.reader.unsigned_varint().map_err(refused)? as usize;
            if size > self.reader.left() {
                return Err(refused(BodyFault::LengthBeyondFrame));
            }
            let Some(known) = schema.tagged.iter().find(|known| known.tag == tag) else {
                self.reader.take(size).map_err(refused)?;
                continue;
            };
            let start = self.reader.position();
            let has_field = known.field.versions.contains(self.version);
            if has_field {
                self.field(&known.field)?;
            }
            if !has_field || self.reader.position() - start != size {
                return Err(Refused {
                    field: known.field.name,
                    fault: BodyFault::InvalidTaggedField,
                });
            }
        }
        Ok(())
    }

    fn count_elements(&mut self, count: usize) -> Result<(), BodyFault> {
        self.elements_left = self
            .elements_left
            .checked_sub(count)
            .ok_or(BodyFault::TooManyElements)?;
        Ok(())
    }
}
