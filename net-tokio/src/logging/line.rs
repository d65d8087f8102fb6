//! The form of a line: text, or a JSON object.
//!
//! Owns the switch between both, which may change while the process runs. Must not decide where
//! lines go.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use zabkeeper_core::ServerId;

/// Which form lines have. Clones share it.
#[derive(Clone, Default)]
pub(super) struct LineForm(Arc<Flags>);

#[derive(Default)]
struct Flags {
    json: AtomicBool,
    coloured: AtomicBool,
}

impl LineForm {
    pub(super) fn set(&self, json: bool, coloured: bool) {
        self.0.json.store(json, Ordering::Relaxed);
        self.0.coloured.store(coloured, Ordering::Relaxed);
    }
}

/// Formats lines.
pub(super) struct Lines {
    form: LineForm,
    server: Arc<OnceLock<ServerId>>,
    plain: Format<Full, Stamp>,
    coloured: Format<Full, Stamp>,
}

/// The start of each text: the time, and in an ensemble the server id, in ZooKeeper's form.
struct Stamp(Arc<OnceLock<ServerId>>);

impl Lines {
    pub(super) fn new(form: LineForm, server: Arc<OnceLock<ServerId>>) -> Lines {
        let text =
            |ansi: bool| Format::default().with_timer(Stamp(Arc::clone(&server))).with_ansi(ansi);
        Lines { form, plain: text(false), coloured: text(true), server }
    }
}

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(line)?;
        match self.0.get() {
            Some(id) => write!(line, " [myid:{id}]"),
            None => Ok(()),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.form.0.json.load(Ordering::Relaxed) {
            return writeln!(writer, "{}", self.object(event)?);
        }
        let coloured = self.form.0.coloured.load(Ordering::Relaxed);
        let format = if coloured { &self.coloured } else { &self.plain };
        format.format_event(context, writer, event)
    }
}

impl Lines {
    /// The line as a JSON object: `timestamp`, `level`, `target`, `myid` in an ensemble, `message`,
    /// and the fields of the event.
    fn object(&self, event: &Event<'_>) -> Result<Value, fmt::Error> {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut object = fields.0;
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        object.insert("timestamp".to_owned(), time.into());
        object.insert("level".to_owned(), event.metadata().level().as_str().into());
        object.insert("target".to_owned(), event.metadata().target().into());
        if let Some(id) = self.server.get() {
            object.insert("myid".to_owned(), id.0.into());
        }
        Ok(Value::Object(object))
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
