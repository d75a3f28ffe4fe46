//! The envelope around every event.

use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::{Event, EventData, EventKind, RawJson};

/// Version of the record schema: that of stock Ballista 55 (`ballista_history::event::SCHEMA_VERSION`).
///
/// Raised only when a field is removed or changes its type or meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// A line of a log before its payload is looked at.
///
/// A reader can tell the kind, the version and the job from the envelope alone, and skip what it doesn't know.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Kind of event; see [`EventKind::as_str`].
    pub ev: String,
    /// Schema version of the writer; see [`SCHEMA_VERSION`].
    pub version: u32,
    /// The job, where the writer said so. Stock logs say it in the file name alone.
    #[serde(default)]
    pub job_id: Option<String>,
    /// The payload, unparsed.
    pub data: RawJson,
}

/// Why a line is not an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not a record: no JSON object with `ev`, `version` and `data`.
    #[error("not an event record: {0}")]
    Malformed(#[source] serde_json::Error),
    /// A record that a newer version wrote.
    #[error(
        "{ev} record has schema version {found}, this reader knows up to {SCHEMA_VERSION}; read it with a newer version"
    )]
    TooNew {
        /// Kind of the record.
        ev: String,
        /// Its schema version.
        found: u32,
    },
    /// A record of a known kind whose payload is not of that kind's shape.
    #[error("malformed {kind} record: {source}")]
    Payload {
        /// Kind of the record.
        kind: EventKind,
        /// What doesn't fit.
        source: serde_json::Error,
    },
}

impl Record {
    /// Reads the envelope of one line.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Malformed`] when the line is no record.
    pub fn parse(line: &str) -> Result<Self, DecodeError> {
        serde_json::from_str(line).map_err(DecodeError::Malformed)
    }

    /// Reads the payload. `Ok(None)` for a kind that this version doesn't know.
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooNew`] for a known kind of a later schema version, [`DecodeError::Payload`] when the payload
    /// doesn't fit the kind.
    pub fn decode(&self) -> Result<Option<Event>, DecodeError> {
        let Some(kind) = EventKind::from_name(&self.ev) else {
            return Ok(None);
        };
        if self.version > SCHEMA_VERSION {
            return Err(DecodeError::TooNew { ev: self.ev.clone(), found: self.version });
        }
        let data = match kind {
            EventKind::JobQueued => EventData::JobQueued(self.payload(kind)?),
            EventKind::JobStart => EventData::JobStart(self.payload(kind)?),
            EventKind::StageStart => EventData::StageStart(self.payload(kind)?),
            EventKind::TaskEnd => EventData::TaskEnd(self.payload(kind)?),
            EventKind::StageEnd => EventData::StageEnd(self.payload(kind)?),
            EventKind::JobPlanRevision => EventData::JobPlanRevision(self.payload(kind)?),
            EventKind::JobEnd => EventData::JobEnd(self.payload(kind)?),
            EventKind::ExecutorRegistered => EventData::ExecutorRegistered(self.payload(kind)?),
            EventKind::ExecutorRemoved => EventData::ExecutorRemoved(self.payload(kind)?),
        };
        Ok(Some(Event { job_id: self.job_id.as_deref().map(Into::into), data }))
    }

    fn payload<T: DeserializeOwned>(&self, kind: EventKind) -> Result<T, DecodeError> {
        serde_json::from_str(self.data.get()).map_err(|source| DecodeError::Payload { kind, source })
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = if self.job_id.is_some() { 4 } else { 3 };
        let mut record = serializer.serialize_struct("Record", fields)?;
        record.serialize_field("ev", self.kind().as_str())?;
        record.serialize_field("version", &SCHEMA_VERSION)?;
        if let Some(job_id) = self.job_id() {
            record.serialize_field("job_id", job_id)?;
        }
        match &self.data {
            EventData::JobQueued(data) => record.serialize_field("data", data)?,
            EventData::JobStart(data) => record.serialize_field("data", data)?,
            EventData::StageStart(data) => record.serialize_field("data", data)?,
            EventData::TaskEnd(data) => record.serialize_field("data", data)?,
            EventData::StageEnd(data) => record.serialize_field("data", data)?,
            EventData::JobPlanRevision(data) => record.serialize_field("data", data)?,
            EventData::JobEnd(data) => record.serialize_field("data", data)?,
            EventData::ExecutorRegistered(data) => record.serialize_field("data", data)?,
            EventData::ExecutorRemoved(data) => record.serialize_field("data", data)?,
        }
        record.end()
    }
}
