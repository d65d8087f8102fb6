//! `zabkeeper server status`: the mode of a server, from its answer to `srvr`.
//!
//! Owns the question and its words, which are those of `zkServer.sh`. Must not depend on the
//! server's version.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use super::{CommandFailure, FAILED, failed, print};
use crate::config::Settings;

/// Time for the connection, and for each part of the answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Prints the mode of the server with this `zoo.cfg`.
///
/// # Errors
/// The file names no port, or no server answers.
pub(super) fn status(file: &Path, out: &mut impl Write) -> Result<(), CommandFailure> {
    let (settings, _) = Settings::from_file(file).map_err(failed)?;
    if settings.port == 0 {
        let what = "Unable to find either secure or unsecure client port in any configs. \
                    Terminating.\n";
        print(out, what)?;
        return Err((FAILED, "clientPort=0 is any free port, which no file names".to_owned()));
    }
    let host = settings.host.as_deref().unwrap_or("localhost");
    let port = settings.port;
    let found = format!("Client port found: {port}. Client address: {host}. Client SSL: false.\n");
    print(out, &found)?;
    match mode(host, port) {
        Some(mode) => print(out, &format!("{mode}\n")),
        None => {
            print(out, "Error contacting service. It is probably not running.\n")?;
            Err((FAILED, String::new()))
        }
    }
}

/// The line with the mode; `None` if there is no answer, or none with a mode.
fn mode(host: &str, port: u16) -> Option<String> {
    let answer = ask(host, port, "srvr").ok()?;
    answer.lines().find(|line| line.contains("Mode")).map(str::to_owned)
}

/// The answer to a four-letter command, from the first address that gives one.
fn ask(host: &str, port: u16, command: &str) -> io::Result<String> {
    let mut failure = io::ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        let connected = TcpStream::connect_timeout(&address, ANSWER);
        match connected.and_then(|socket| ask_on(socket, command)) {
            Ok(answer) => return Ok(answer),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn ask_on(mut socket: TcpStream, command: &str) -> io::Result<String> {
    socket.set_read_timeout(Some(ANSWER))?;
    socket.write_all(command.as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}
