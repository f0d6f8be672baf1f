//! A thin client: one blocking connection, mostly over a Unix-domain socket, one write and (mostly) one read per statement.
//!
//! A thread per connection that blocks in the read costs less than a poll and a read, so there is no event loop. The
//! messages are those libpq sends, so that the server does the same work as for most applications; values and results
//! travel as text.

use std::fmt::{self, Write as _};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use postgres_protocol::authentication::{self, sasl};
use postgres_protocol::message::backend::{self, ErrorResponseBody, Header, Message};
use postgres_protocol::message::frontend;

use crate::cluster::SUPERUSER;
use crate::error::{Error, Result, check_interrupted};

/// How often a session that waits for the server looks whether the user wants to stop.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Of the input buffer, bytes, at first.
const INPUT_SIZE: usize = 16 * 1024;
/// Text, for parameters and for results.
const TEXT_FORMAT: i16 = 0;
/// Serialization failure, deadlock.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];
/// For Describe.
const PORTAL: u8 = b'P';

/// A row of a query's result, as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// The result of one statement; without columns where it gave none.
#[derive(Debug, Default)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// A value for a statement's parameter, sent as text.
pub trait Parameter {
    fn write(&self, buffer: &mut BytesMut) -> IsNull;
}

impl Parameter for i64 {
    fn write(&self, buffer: &mut BytesMut) -> IsNull {
        // A BytesMut grows.
        let _ = write!(buffer, "{self}");
        IsNull::No
    }
}

impl Parameter for Option<String> {
    fn write(&self, buffer: &mut BytesMut) -> IsNull {
        match self {
            Some(text) => {
                buffer.extend_from_slice(text.as_bytes());
                IsNull::No
            }
            None => IsNull::Yes,
        }
    }
}

/// Where a statement of the extended protocol is.
#[derive(Clone, Copy, Debug)]
pub enum Statement<'a> {
    /// Parsed each time.
    Text(&'a str),
    /// Prepared before, under this name.
    Name(&'a str),
}

/// What a session talks through. A read that would wait for longer than a second gives `WouldBlock` instead.
pub trait Wire: Read + Write + fmt::Debug + Send {}

impl<W: Read + Write + fmt::Debug + Send> Wire for W {}

/// Who wants in, and where.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    pub user: &'a str,
    pub database: &'a str,
    /// For servers that ask.
    pub password: Option<&'a str>,
}

/// A connection to a server. After any error that is not the server's answer to a statement it is of no more use.
#[derive(Debug)]
pub struct Session {
    stream: Stream,
    output: BytesMut,
    input: Input,
    backend_pid: i32,
    /// Whether the user's wish to stop ends it.
    interruptible: bool,
}

/// The usual way without an indirection.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Other(Box<dyn Wire>),
}

impl Stream {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(room),
            Stream::Other(stream) => stream.read(room),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Other(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

impl Session {
    /// As the superuser of a throwaway server.
    pub fn connect(socket: &Path) -> Result<Self> {
        Self::connect_as(socket, Login { user: SUPERUSER, database: SUPERUSER, password: None })
    }

    pub fn connect_as(socket: &Path, login: Login) -> Result<Self> {
        let lost = |e| Error::Failed(format!("cannot connect to {}: {e}", socket.display()));
        let stream = UnixStream::connect(socket).map_err(lost)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
        Self::start(Stream::Unix(stream), login)
    }

    /// Over a connection that has been made, encrypted if it is to be.
    pub fn over(wire: Box<dyn Wire>, login: Login) -> Result<Self> {
        Self::start(Stream::Other(wire), login)
    }

    fn start(stream: Stream, login: Login) -> Result<Self> {
        let mut session = Session {
            stream,
            output: BytesMut::new(),
            input: Input::default(),
            backend_pid: 0,
            interruptible: true,
        };
        let parameters =
            [("user", login.user), ("database", login.database), ("application_name", "pgss_rs_load")];
        frontend::startup_message(parameters, &mut session.output).map_err(encoding)?;
        session.send()?;
        let mut scram = None;
        loop {
            let message = session.receive()?;
            match message {
                Message::ReadyForQuery(_) => return Ok(session),
                Message::BackendKeyData(body) => session.backend_pid = body.process_id(),
                Message::ErrorResponse(body) => return Err(server_error(&body)),
                message => session.authenticate(&message, login, &mut scram)?,
            }
        }
    }

    /// Answers what the server asks for, if it asks for something.
    fn authenticate(
        &mut self,
        message: &Message,
        login: Login,
        scram: &mut Option<ScramSha256>,
    ) -> Result<()> {
        let password = || {
            let missing = || Error::Request(format!("the server wants a password for {}", login.user));
            login.password.map(str::as_bytes).ok_or_else(missing)
        };
        let output = &mut self.output;
        match message {
            Message::AuthenticationCleartextPassword => {
                frontend::password_message(password()?, output).map_err(encoding)?;
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = authentication::md5_hash(login.user.as_bytes(), password()?, body.salt());
                frontend::password_message(hash.as_bytes(), output).map_err(encoding)?;
            }
            Message::AuthenticationSasl(body) => {
                let known =
                    body.mechanisms().any(|name| Ok(name == sasl::SCRAM_SHA_256)).map_err(protocol)?;
                if !known {
                    return Err(Error::Failed(
                        "the server asks for a way to log in that is not known here".to_owned(),
                    ));
                }
                let new = ScramSha256::new(password()?, ChannelBinding::unsupported());
                let first = scram.insert(new).message();
                frontend::sasl_initial_response(sasl::SCRAM_SHA_256, first, output).map_err(encoding)?;
            }
            Message::AuthenticationSaslContinue(body) => {
                if let Some(scram) = scram {
                    scram.update(body.data()).map_err(protocol)?;
                    frontend::sasl_response(scram.message(), output).map_err(encoding)?;
                }
            }
            Message::AuthenticationSaslFinal(body) => {
                if let Some(scram) = scram {
                    scram.finish(body.data()).map_err(protocol)?;
                }
            }
            Message::AuthenticationGss | Message::AuthenticationSspi | Message::AuthenticationKerberosV5 => {
                return Err(Error::Failed(
                    "the server asks for a way to log in that is not known here".to_owned(),
                ));
            }
            _ => {}
        }
        if self.output.is_empty() { Ok(()) } else { self.send() }
    }

    /// The server process of this session.
    pub fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// Goes on although the user wants to stop: to clean up.
    pub fn see_it_through(&mut self) {
        self.interruptible = false;
    }

    /// Runs statements without looking at their results.
    pub fn execute(&mut self, sql: &str) -> Result<()> {
        self.simple(sql).map_err(|e| with_statement(e, sql))
    }

    /// Runs one query and returns its rows.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>> {
        frontend::query(sql, &mut self.output).map_err(encoding)?;
        let results = self.results().map_err(|e| with_statement(e, sql))?;
        Ok(results.into_iter().next_back().map(|result| result.rows).unwrap_or_default())
    }

    /// Runs a query that gives one number.
    pub fn query_number(&mut self, sql: &str) -> Result<f64> {
        let rows = self.query(sql)?;
        let number = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
        number.ok_or_else(|| Error::Failed(format!("no number came back\n  in: {sql}")))
    }

    /// The simple protocol: one Query message.
    pub fn simple(&mut self, sql: &str) -> Result<()> {
        frontend::query(sql, &mut self.output).map_err(encoding)?;
        self.flush()
    }

    /// The same, with the results of all its statements.
    pub fn simple_results(&mut self, sql: &str) -> Result<Vec<Rows>> {
        frontend::query(sql, &mut self.output).map_err(encoding)?;
        self.results()
    }

    /// The extended protocol with an unnamed statement: parsed, bound, executed.
    pub fn extended<P: Parameter>(&mut self, sql: &str, values: &[P]) -> Result<()> {
        self.queue(Statement::Text(sql), values)?;
        self.finish()
    }

    /// Parses a statement for [`Session::prepared`].
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        frontend::parse(name, sql, [], &mut self.output).map_err(encoding)?;
        frontend::sync(&mut self.output);
        self.flush().map_err(|e| with_statement(e, sql))
    }

    /// The extended protocol with a prepared statement: bound, executed.
    pub fn prepared<P: Parameter>(&mut self, name: &str, values: &[P]) -> Result<()> {
        self.queue(Statement::Name(name), values)?;
        self.finish()
    }

    /// Parses a statement later, with what is queued.
    pub fn queue_prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        frontend::parse(name, sql, [], &mut self.output).map_err(encoding)
    }

    /// Binds and executes a statement later, with what is queued.
    pub fn queue<P: Parameter>(&mut self, statement: Statement, values: &[P]) -> Result<()> {
        let output = &mut self.output;
        let name = match statement {
            Statement::Text(sql) => {
                frontend::parse("", sql, [], output).map_err(encoding)?;
                ""
            }
            Statement::Name(name) => name,
        };
        let write = |value: &P, buffer: &mut BytesMut| Ok(value.write(buffer));
        frontend::bind("", name, [TEXT_FORMAT], values, write, [TEXT_FORMAT], output)
            .map_err(|_| Error::Failed("a parameter could not be encoded".to_owned()))?;
        frontend::describe(PORTAL, "", output).map_err(encoding)?;
        frontend::execute("", 0, output).map_err(encoding)
    }

    /// A point to go on from after an error in what is queued.
    pub fn queue_sync(&mut self) {
        frontend::sync(&mut self.output);
    }

    /// Bytes queued.
    pub fn queued(&self) -> usize {
        self.output.len()
    }

    /// Sends what is queued; the answers are skipped unless one is an error. `syncs`: of them in what is queued.
    pub fn run_queued(&mut self, syncs: u32) -> Result<()> {
        self.send()?;
        let mut failure = Ok(());
        for _ in 0..syncs {
            failure = failure.and(self.answer());
        }
        failure
    }

    /// Sends what is queued and returns the results.
    pub fn finish_with_results(&mut self) -> Result<Vec<Rows>> {
        frontend::sync(&mut self.output);
        self.results()
    }

    fn finish(&mut self) -> Result<()> {
        frontend::sync(&mut self.output);
        self.flush()
    }

    /// Sends what is in the output buffer and collects the results of all its statements.
    fn results(&mut self) -> Result<Vec<Rows>> {
        let (mut results, mut current) = (Vec::new(), Rows::default());
        self.exchange(|message| {
            match message {
                Message::RowDescription(body) => {
                    let names = body.fields().map(|field| Ok(field.name().to_owned()));
                    current.columns = names.collect().map_err(protocol)?;
                }
                Message::DataRow(body) => {
                    let field = |range: Option<std::ops::Range<usize>>| {
                        Ok(range.map(|r| String::from_utf8_lossy(&body.buffer()[r]).into_owned()))
                    };
                    current.rows.push(body.ranges().map(field).collect::<Row>().map_err(protocol)?);
                }
                Message::CommandComplete(_) => results.push(std::mem::take(&mut current)),
                _ => {}
            }
            Ok(())
        })?;
        Ok(results)
    }

    /// Sends what is in the output buffer and skips the answer, unless it is an error.
    fn flush(&mut self) -> Result<()> {
        self.send()?;
        self.answer()
    }

    /// Skips one answer, unless it is an error.
    fn answer(&mut self) -> Result<()> {
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

    fn receive(&mut self) -> Result<Message> {
        let (_, whole) = self.next_message(&None)?;
        let message = self.input.parse(whole)?;
        self.input.consume(whole);
        Ok(message)
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
                    if self.interruptible {
                        check_interrupted()?;
                    }
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
    let words = format!("{severity} {state}: {text}");
    if CONFLICTS.contains(&state.as_str()) { Error::Conflict(words) } else { Error::Failed(words) }
}

fn with_statement(error: Error, sql: &str) -> Error {
    error.reworded(|text| format!("{text}\n  in: {sql}"))
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
