//! Servers that are there already: where they are (`--dsn`), and how to reach them, encrypted or not.
//!
//! What libpq reads is read here as far as it concerns a password login: connection strings of both kinds and the
//! environment's PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGSSLMODE and PGSSLROOTCERT; no password file.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
};

use crate::client::{Login, PATIENCE, Session};
use crate::error::{Error, Result};

/// For connecting and for the handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_PORT: u16 = 5432;

/// How much the connection has to be protected, as libpq names it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SslMode {
    Disable,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted, whoever the server is.
    Require,
    /// The server's certificate is one of a trusted authority.
    VerifyCa,
    /// And it is for this host.
    VerifyFull,
}

/// A server, and how to log in.
#[derive(Clone)]
pub struct Target {
    /// A name, an address, or the directory of a socket.
    host: String,
    port: u16,
    user: String,
    database: String,
    password: Option<String>,
    ssl: SslMode,
    root_certificate: Option<PathBuf>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Target {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}:{} as {}", self.database, self.host, self.port, self.user)
    }
}

impl serde::Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Target {
    /// A URI or keywords and values; the environment where it says nothing.
    pub fn parse(dsn: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let given = match dsn.strip_prefix("postgresql://").or_else(|| dsn.strip_prefix("postgres://")) {
            Some(rest) => of_uri(rest),
            None => of_keywords(dsn),
        };
        let given = given.map_err(|reason| Error::Request(format!("--dsn: {reason}")))?;
        const KNOWN: [&str; 9] = [
            "host",
            "port",
            "user",
            "dbname",
            "password",
            "sslmode",
            "sslrootcert",
            "application_name",
            "connect_timeout",
        ];
        if let Some(unknown) = given.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return Err(Error::Request(format!("--dsn: {unknown} is not known here")));
        }
        let get = |key: &str, variable: &str| {
            given.get(key).filter(|value| !value.is_empty()).cloned().or_else(|| environment(variable))
        };
        let user =
            get("user", "PGUSER").or_else(|| environment("USER")).unwrap_or_else(|| "postgres".to_owned());
        let port = match get("port", "PGPORT") {
            Some(text) => text.parse().map_err(|_| Error::Request(format!("--dsn: {text} is no port")))?,
            None => DEFAULT_PORT,
        };
        let ssl = match get("sslmode", "PGSSLMODE").as_deref() {
            None | Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(other) => return Err(Error::Request(format!("--dsn: there is no sslmode {other}"))),
        };
        Ok(Target {
            host: get("host", "PGHOST").unwrap_or_else(|| "localhost".to_owned()),
            port,
            database: get("dbname", "PGDATABASE").unwrap_or_else(|| user.clone()),
            user,
            password: get("password", "PGPASSWORD"),
            ssl,
            root_certificate: get("sslrootcert", "PGSSLROOTCERT").map(PathBuf::from),
        })
    }

    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    pub fn connect(&self) -> Result<Session> {
        let login = Login { user: &self.user, database: &self.database, password: self.password.as_deref() };
        if self.host.starts_with('/') {
            return Session::connect_as(
                &Path::new(&self.host).join(format!(".s.PGSQL.{}", self.port)),
                login,
            );
        }
        let lost = |e: std::io::Error| Error::Failed(format!("cannot connect to {self}: {e}"));
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(lost)?;
        if self.ssl != SslMode::Disable && self.server_encrypts(&mut stream).map_err(lost)? {
            let mut tls = self.encrypt(stream)?;
            while tls.conn.is_handshaking() {
                tls.conn.complete_io(&mut tls.sock).map_err(lost)?;
            }
            tls.sock.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
            return Session::over(Box::new(tls), login);
        }
        stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
        Session::over(Box::new(stream), login)
    }

    /// Asks the server; refuses to go on in the clear where that is not allowed.
    fn server_encrypts(&self, stream: &mut TcpStream) -> std::io::Result<bool> {
        let mut request = bytes::BytesMut::new();
        postgres_protocol::message::frontend::ssl_request(&mut request);
        stream.write_all(&request)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        match (&answer, self.ssl) {
            (b"S", _) => Ok(true),
            (_, SslMode::Prefer) => Ok(false),
            _ => Err(std::io::Error::other("the server does not encrypt, and sslmode wants it to")),
        }
    }

    fn encrypt(&self, stream: TcpStream) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let failed = |e: String| Error::Failed(format!("cannot encrypt the connection to {self}: {e}"));
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| failed(e.to_string()))?;
        let config = match self.ssl {
            SslMode::VerifyFull => builder.with_root_certificates(self.roots()?).with_no_client_auth(),
            mode => {
                let authorities = if mode == SslMode::VerifyCa {
                    let roots = Arc::new(self.roots()?);
                    let built =
                        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
                    Some(built.map_err(|e| failed(e.to_string()))?)
                } else {
                    None
                };
                let verifier = Arc::new(AnyName { authorities, provider });
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
        };
        let name = ServerName::try_from(self.host.clone()).map_err(|e| failed(e.to_string()))?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(|e| failed(e.to_string()))?;
        Ok(StreamOwned::new(connection, stream))
    }

    /// The authorities that are trusted: those of the file, else the system's.
    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let certificates = match &self.root_certificate {
            Some(file) => {
                let unreadable = |e| Error::Request(format!("sslrootcert {}: {e}", file.display()));
                let found = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
                found.collect::<std::result::Result<Vec<_>, _>>().map_err(unreadable)?
            }
            None => rustls_native_certs::load_native_certs().certs,
        };
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(Error::Request(
                "no trusted certificates were found: sslrootcert names a file of them".to_owned(),
            ));
        }
        Ok(roots)
    }
}

/// Accepts a certificate whatever name it is for: one of these authorities, or any.
#[derive(Debug)]
struct AnyName {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

type Given = HashMap<String, String>;

/// `user:password@host:port/database?key=value&...`
fn of_uri(text: &str) -> std::result::Result<Given, String> {
    let mut given = Given::new();
    let mut put = |key: &str, value: &str| -> std::result::Result<(), String> {
        if !value.is_empty() {
            given.insert(key.to_owned(), decoded(value)?);
        }
        Ok(())
    };
    let (place, parameters) = text.split_once('?').unwrap_or((text, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':').unwrap_or("")),
        None => host.rsplit_once(':').unwrap_or((host, "")),
    };
    if host.contains(',') {
        return Err("several hosts are not known here".to_owned());
    }
    for (key, value) in
        [("user", user), ("password", password), ("host", host), ("port", port), ("dbname", database)]
    {
        put(key, value)?;
    }
    for parameter in parameters.split('&').filter(|p| !p.is_empty()) {
        let Some((key, value)) = parameter.split_once('=') else {
            return Err(format!("{parameter} has no value"));
        };
        put(key, value)?;
    }
    Ok(given)
}

/// With `%` and two hexadecimal digits for a byte.
fn decoded(text: &str) -> std::result::Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).ok_or("a % without two digits after it")?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| format!("%{digits} is no byte"))?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())
}

/// `key=value key='value with \' and spaces'`
fn of_keywords(text: &str) -> std::result::Result<Given, String> {
    let mut given = Given::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            return Err(format!("\"{rest}\" is neither a URI nor key=value"));
        };
        let after = after.trim_start();
        let (quoted, after) = match after.strip_prefix('\'') {
            Some(after) => (true, after),
            None => (false, after),
        };
        let (mut value, mut characters) = (String::new(), after.chars());
        loop {
            match characters.next() {
                Some('\\') => value.extend(characters.next()),
                Some('\'') if quoted => break,
                Some(c) if !quoted && c.is_whitespace() => break,
                Some(c) => value.push(c),
                None if quoted => return Err("a ' is not closed".to_owned()),
                None => break,
            }
        }
        given.insert(key.trim().to_owned(), value);
        rest = characters.as_str().trim_start();
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::Cluster;

    fn parse(dsn: &str) -> Result<Target> {
        Target::parse(dsn, |variable| (variable == "PGUSER").then(|| "env".to_owned()))
    }

    #[test]
    fn both_kinds_of_connection_strings_are_read() {
        for dsn in [
            "postgresql://me:p%40ss@db.example:6432/app?sslmode=verify-full&sslrootcert=/ca.crt",
            "host=db.example port=6432 user=me dbname=app password='p@ss' sslmode=verify-full sslrootcert = /ca.crt",
        ] {
            let target = parse(dsn).unwrap();
            assert_eq!(target.to_string(), "app on db.example:6432 as me");
            assert_eq!(target.password.as_deref(), Some("p@ss"));
            assert_eq!((target.ssl, target.root_certificate), (SslMode::VerifyFull, Some("/ca.crt".into())));
        }
        assert_eq!(parse("postgres://").unwrap().to_string(), "env on localhost:5432 as env");
        assert_eq!(parse("postgres://[::1]:5/x").unwrap().to_string(), "x on ::1:5 as env");
        assert_eq!(
            parse("host='/tmp/a b' dbname=it\\'s").unwrap().to_string(),
            "it's on /tmp/a b:5432 as env"
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_why_and_no_password_is_shown() {
        let error = |dsn| parse(dsn).unwrap_err().to_string();
        assert!(error("db.example").contains("neither a URI nor key=value"));
        assert!(error("port=many").contains("many is no port"));
        assert!(error("sslmode=maybe").contains("no sslmode maybe"));
        assert!(error("service=x").contains("service is not known"));
        assert!(error("postgres://a,b/x").contains("several hosts"));
        assert!(error("postgres://%4/x").contains("%"));
        let target = parse("password=secret").unwrap();
        assert!(!format!("{target:?} {}", serde_json::to_string(&target).unwrap()).contains("secret"));
    }

    proptest! {
        #[test]
        fn no_connection_string_makes_it_panic(text in ".{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("postgres://{text}"));
        }
    }

    #[test]
    fn encrypted_connections_check_what_they_are_told_to() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let cluster = Cluster::builder(pg_config)
            .on_loopback()
            .certificate(&own.cert.pem(), &own.signing_key.serialize_pem())
            .setting("password_encryption", "scram-sha-256")
            .start()
            .unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        session.execute("CREATE ROLE someone LOGIN PASSWORD 'right'").unwrap();
        std::fs::write(
            cluster.data_dir().join("pg_hba.conf"),
            "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n",
        )
        .unwrap();
        session.execute("SELECT pg_reload_conf()").unwrap();

        let file = |name: &str, pem: String| {
            let path = std::env::temp_dir().join(format!("pgss_rs_{name}.{}", std::process::id()));
            std::fs::write(&path, pem).unwrap();
            path
        };
        let (own, other) = (file("own", own.cert.pem()), file("other", other.cert.pem()));
        let connect = |host: &str, password: &str, ssl: &str, root: &Path| {
            let port = cluster.port();
            let dsn = format!(
                "host={host} port={port} user=someone dbname=postgres password={password} sslmode={ssl} sslrootcert={}",
                root.display()
            );
            parse(&dsn).unwrap().connect()
        };
        let encrypted = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        for (host, ssl) in
            [("localhost", "verify-full"), ("127.0.0.1", "verify-ca"), ("127.0.0.1", "require")]
        {
            // The server may still be reading its new pg_hba.conf.
            let mut session = loop {
                match connect(host, "right", ssl, &own) {
                    Err(e) if e.to_string().contains("pg_hba.conf") => std::thread::yield_now(),
                    connected => break connected.unwrap(),
                }
            };
            let version = session.query(encrypted).unwrap();
            assert!(version[0][0].as_ref().unwrap().starts_with("TLS"), "{version:?}");
        }
        let refused = |host, password, ssl, root| connect(host, password, ssl, root).unwrap_err().to_string();
        assert!(refused("127.0.0.1", "right", "verify-full", &own).contains("certificate"));
        assert!(refused("localhost", "right", "verify-full", &other).contains("certificate"));
        assert!(refused("127.0.0.1", "right", "verify-ca", &other).contains("certificate"));
        assert!(refused("127.0.0.1", "wrong", "require", &own).contains("28P01"));
        assert!(refused("127.0.0.1", "right", "disable", &own).contains("28000"));
        for file in [own, other] {
            let _ = std::fs::remove_file(file);
        }
    }
}
