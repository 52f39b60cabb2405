//! An HTTP server on the loopback interface, and a client that keeps it busy.
//!
//! The server has one thread and the client another. The client is plain blocking sockets, so that it costs less than
//! the server and the server is what is measured; it keeps one request on each of its connections under way.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use axum::Router;

use crate::harness::cpu::CpuTime;

const CONNECTIONS: usize = 16;

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A server that runs until the process ends, and connections to it.
pub(crate) struct Server {
    connections: Vec<Connection>,
    cpu: CpuTime,
}

/// What a server did in a round.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) requests_per_second: f64,
    /// Microseconds on a CPU per request.
    pub(crate) cpu_us: f64,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Server {
    /// Serves `app`, which has to answer all requests but the first with `status`.
    pub(crate) fn new(app: Router, status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a loopback interface");
        let address = listener.local_addr().expect("a bound socket has an address");
        let cpu = CpuTime::of(|| serve(listener, app));
        let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| Connection::new(address)).collect();
        connections[0].send();
        connections[0].receive();
        for connection in &mut connections {
            connection.send();
            assert_eq!(connection.receive(), status);
        }
        Self { connections, cpu }
    }

    /// Keeps the server busy for about so long.
    pub(crate) fn round(&mut self, length: Duration) -> Round {
        let cpu = self.cpu.us();
        let start = Instant::now();
        let mut requests = 0;
        self.connections.iter_mut().for_each(Connection::send);
        while start.elapsed() < length {
            for connection in &mut self.connections {
                connection.receive();
                connection.send();
                requests += 1;
            }
        }
        for connection in &mut self.connections {
            connection.receive();
            requests += 1;
        }
        let requests = f64::from(requests);
        Round {
            requests_per_second: requests / start.elapsed().as_secs_f64(),
            cpu_us: (self.cpu.us() - cpu) / requests,
        }
    }
}

fn serve(listener: TcpListener, app: Router) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("the runtime starts").block_on(async {
        listener.set_nonblocking(true).expect("a socket can be nonblocking");
        let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime takes the socket");
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, app).await.expect("axum serves until the process ends");
    });
}

impl Connection {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket can be without delay");
        Self { stream, received: vec![0; 8_192] }
    }

    fn send(&mut self) {
        self.stream.write_all(REQUEST).expect("the server takes the request");
    }

    /// Reads a response, and says its status.
    fn receive(&mut self) -> u16 {
        let mut length = 0;
        loop {
            let read = self.stream.read(&mut self.received[length..]).expect("the server answers");
            assert!(read > 0, "the server closed a connection");
            length += read;
            if let Some((status, whole)) = parse(&self.received[..length]) {
                assert!(length <= whole, "nothing comes unasked");
                if length == whole {
                    return status;
                }
            }
        }
    }
}

/// The status of a response, and its length with its body, if its head is here.
fn parse(received: &[u8]) -> Option<(u16, usize)> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = std::str::from_utf8(received.get(9..12)?).ok()?.parse().ok()?;
    let at = received[..head].windows(LENGTH.len()).position(|window| window == LENGTH)? + LENGTH.len();
    let digits = received[at..].iter().take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    Some((status, head + 4 + body))
}
