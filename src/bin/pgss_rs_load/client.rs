//! A thin client: one blocking connection over a Unix-domain socket, one write and (mostly) one read per statement.
//!
//! A thread per connection that blocks in the read costs less than a poll and a read, so there is no event loop. The
//! messages are those libpq sends, so that the server does the same work as for most applications; values and results
//! travel as text.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{self, ErrorResponseBody, Header, Message};
use postgres_protocol::message::frontend;

use crate::cluster::SUPERUSER;
use crate::error::{Error, Result, check_interrupted};

/// How often a session that waits for the server looks whether the user wants to stop.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of the input buffer, bytes, at first.
const INPUT_SIZE: usize = 16 * 1024;
/// Text, for parameters and for results.
const TEXT_FORMAT: i16 = 0;
/// For Describe.
const PORTAL: u8 = b'P';

/// A row of a query's result, as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// A connection to a server as superuser. After any error it is of no more use.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    output: BytesMut,
    input: Input,
    backend_pid: i32,
}

impl Session {
    pub fn connect(socket: &Path) -> Result<Self> {
        let lost = |e| Error::Failed(format!("cannot connect to {}: {e}", socket.display()));
        let stream = UnixStream::connect(socket).map_err(lost)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
        let mut session =
            Session { stream, output: BytesMut::new(), input: Input::default(), backend_pid: 0 };
        let parameters = [("user", SUPERUSER), ("database", SUPERUSER), ("application_name", "pgss_rs_load")];
        frontend::startup_message(parameters, &mut session.output).map_err(lost)?;
        let mut pid = 0;
        session.exchange(|message| {
            if let Message::BackendKeyData(body) = message {
                pid = body.process_id();
            }
            Ok(())
        })?;
        session.backend_pid = pid;
        Ok(session)
    }

    /// The server process of this session.
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// Runs statements without looking at their results.
    pub fn execute(&mut self, sql: &str) -> Result<()> {
        self.simple(sql).map_err(|e| with_statement(e, sql))
    }

    /// Runs one query and returns its rows.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>> {
        frontend::query(sql, &mut self.output).map_err(encoding)?;
        let mut rows = Vec::new();
        let done = self.exchange(|message| {
            if let Message::DataRow(body) = message {
                let field = |range: Option<std::ops::Range<usize>>| {
                    Ok(range.map(|r| String::from_utf8_lossy(&body.buffer()[r]).into_owned()))
                };
                rows.push(body.ranges().map(field).collect::<Row>().map_err(protocol)?);
            }
            Ok(())
        });
        done.map_err(|e| with_statement(e, sql))?;
        Ok(rows)
    }

    /// The simple protocol: one Query message.
    pub fn simple(&mut self, sql: &str) -> Result<()> {
        frontend::query(sql, &mut self.output).map_err(encoding)?;
        self.flush()
    }

    /// The extended protocol with an unnamed statement: parsed, bound, executed.
    pub fn extended(&mut self, sql: &str, values: &[i64]) -> Result<()> {
        frontend::parse("", sql, [], &mut self.output).map_err(encoding)?;
        self.bind_execute("", values)
    }

    /// Parses a statement for [`Session::prepared`].
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        frontend::parse(name, sql, [], &mut self.output).map_err(encoding)?;
        frontend::sync(&mut self.output);
        self.flush().map_err(|e| with_statement(e, sql))
    }

    /// The extended protocol with a prepared statement: bound, executed.
    pub fn prepared(&mut self, name: &str, values: &[i64]) -> Result<()> {
        self.bind_execute(name, values)
    }

    fn bind_execute(&mut self, statement: &str, values: &[i64]) -> Result<()> {
        let output = &mut self.output;
        let write = |value: &i64, buffer: &mut BytesMut| match write!(buffer, "{value}") {
            Ok(()) => Ok(IsNull::No),
            Err(e) => Err(e.into()),
        };
        frontend::bind("", statement, [TEXT_FORMAT], values, write, [TEXT_FORMAT], output)
            .map_err(|_| Error::Failed("a parameter could not be encoded".to_owned()))?;
        frontend::describe(PORTAL, "", output).map_err(encoding)?;
        frontend::execute("", 0, output).map_err(encoding)?;
        frontend::sync(output);
        self.flush()
    }

    /// Sends what is in the output buffer and skips the answer, unless it is an error.
    fn flush(&mut self) -> Result<()> {
        self.send()?;
        let mut failure = None;
        loop {
            let (header, whole) = self.next_message(&failure)?;
            match header.tag() {
                backend::READY_FOR_QUERY_TAG => {
                    self.input.consume(whole);
                    return failure.map_or(Ok(()), Err);
                }
                backend::ERROR_RESPONSE_TAG => {
                    if let Message::ErrorResponse(body) = self.input.parse(whole)? {
                        failure.get_or_insert(server_error(&body));
                    }
                }
                _ => {}
            }
            self.input.consume(whole);
        }
    }

    /// Sends what is in the output buffer and shows each message of the answer.
    fn exchange(&mut self, mut each: impl FnMut(&Message) -> Result<()>) -> Result<()> {
        self.send()?;
        let mut failure = None;
        loop {
            let (_, whole) = self.next_message(&failure)?;
            let message = self.input.parse(whole)?;
            self.input.consume(whole);
            match message {
                Message::ReadyForQuery(_) => return failure.map_or(Ok(()), Err),
                Message::ErrorResponse(body) => {
                    failure.get_or_insert(server_error(&body));
                }
                message => each(&message)?,
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        sent.map_err(|e| Error::Failed(format!("the server is gone: {e}")))
    }

    /// The next message's header and its whole length. `failure`: what the server said last, in case it hangs up.
    fn next_message(&mut self, failure: &Option<Error>) -> Result<(Header, usize)> {
        loop {
            if let Some(found) = self.input.peek()? {
                return Ok(found);
            }
            match self.stream.read(self.input.room()) {
                Ok(0) => {
                    let reason =
                        failure.as_ref().map_or("it closed the connection".to_owned(), Error::to_string);
                    return Err(Error::Failed(format!("the server is gone: {reason}")));
                }
                Ok(n) => self.input.filled(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => {
                    check_interrupted()?;
                }
                Err(e) => return Err(Error::Failed(format!("the server is gone: {e}"))),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.output.clear();
        frontend::terminate(&mut self.output);
        // Best effort: the server may have gone first.
        let _ = self.stream.write_all(&self.output);
    }
}

/// What has been received and not yet consumed: `bytes[start..end]`.
#[derive(Debug)]
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for Input {
    fn default() -> Self {
        Input { bytes: vec![0; INPUT_SIZE], start: 0, end: 0 }
    }
}

impl Input {
    /// The first message, if all of it is there: its header and its length with the header.
    fn peek(&self) -> Result<Option<(Header, usize)>> {
        let received = &self.bytes[self.start..self.end];
        let Some(header) = Header::parse(received).map_err(protocol)? else { return Ok(None) };
        // The length counts itself but not the tag.
        let whole =
            usize::try_from(header.len()).map_err(|_| Error::Failed("a negative length".to_owned()))? + 1;
        Ok((whole <= received.len()).then_some((header, whole)))
    }

    fn parse(&self, whole: usize) -> Result<Message> {
        let mut bytes = BytesMut::from(&self.bytes[self.start..self.start + whole]);
        match Message::parse(&mut bytes).map_err(protocol)? {
            Some(message) => Ok(message),
            None => Err(Error::Failed("the server sent half a message".to_owned())),
        }
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    fn filled(&mut self, length: usize) {
        self.end += length;
    }

    fn room(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end * 2 > self.bytes.len() {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        &mut self.bytes[self.end..]
    }
}

fn server_error(body: &ErrorResponseBody) -> Error {
    let (mut severity, mut state, mut text) = (String::new(), String::new(), String::new());
    let mut fields = body.fields();
    while let Ok(Some(field)) = fields.next() {
        let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'S' => severity = value(),
            b'C' => state = value(),
            b'M' => text = value(),
            _ => {}
        }
    }
    Error::Failed(format!("{severity} {state}: {text}"))
}

fn with_statement(error: Error, sql: &str) -> Error {
    match error {
        Error::Failed(text) => Error::Failed(format!("{text}\n  in: {sql}")),
        other => other,
    }
}

fn encoding(error: std::io::Error) -> Error {
    Error::Failed(format!("a message could not be encoded: {error}"))
}

fn protocol(error: std::io::Error) -> Error {
    Error::Failed(format!("the server's answer makes no sense: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn receive(input: &mut Input, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = bytes.read(input.room()).unwrap();
            input.filled(n);
        }
    }

    #[test]
    fn a_message_counts_only_when_it_is_whole() {
        let mut input = Input::default();
        let bytes = message(backend::READY_FOR_QUERY_TAG, b"I");
        receive(&mut input, &bytes[..5]);
        assert!(input.peek().unwrap().is_none());
        receive(&mut input, &bytes[5..]);
        let (header, whole) = input.peek().unwrap().unwrap();
        assert_eq!((header.tag(), whole), (b'Z', 6));
        input.consume(whole);
        assert!(input.peek().unwrap().is_none());
    }

    #[test]
    fn a_message_larger_than_the_buffer_makes_it_grow() {
        let mut input = Input::default();
        receive(&mut input, &message(backend::NOTICE_RESPONSE_TAG, b"\0"));
        receive(&mut input, &message(backend::DATA_ROW_TAG, &vec![7; 3 * INPUT_SIZE]));
        input.consume(6);
        let (header, whole) = input.peek().unwrap().unwrap();
        assert_eq!((header.tag(), whole), (b'D', 3 * INPUT_SIZE + 5));
    }

    #[test]
    fn a_server_error_shows_severity_state_and_text() {
        let mut input = Input::default();
        receive(&mut input, &message(b'E', b"SERROR\0VERROR\0C42P01\0Mrelation \"t\" does not exist\0\0"));
        let (_, whole) = input.peek().unwrap().unwrap();
        let Message::ErrorResponse(body) = input.parse(whole).unwrap() else { panic!("no error response") };
        let text = with_statement(server_error(&body), "TABLE t").to_string();
        assert_eq!(text, "ERROR 42P01: relation \"t\" does not exist\n  in: TABLE t");
    }

    #[test]
    fn a_server_that_crashes_ends_the_session_and_comes_back() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let mut cluster = crate::cluster::Cluster::builder(pg_config).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        let pid = session.query("SELECT pg_backend_pid()").unwrap();
        assert_eq!(pid, [[Some(session.backend_pid().to_string())]]);

        cluster.crash(session.backend_pid()).unwrap();
        assert!(session.execute("SELECT 1").unwrap_err().to_string().starts_with("the server is gone"));
        let mut again = Session::connect(&cluster.socket()).unwrap();
        assert_eq!(again.query("SELECT NULL, 'x'").unwrap(), [[None, Some("x".to_owned())]]);
    }
}
