//! A TCP proxy that misbehaves as it is told, while it runs.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, sleep_until};

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Pass,
    /// A black hole: nothing gets through now, and everything later, as when TCP sends again what was lost. TCP loses
    /// no byte out of the middle, so neither does this.
    Hold,
    /// Each packet takes `base`, more or less by up to `jitter`; none overtakes another.
    Delay {
        base: Duration,
        jitter: Duration,
    },
    /// One byte at a time, and a pause after each.
    Drip(Duration),
    /// After so many bytes, from now on, both ends see the connection closed.
    CutAfter(usize),
    /// These bytes in place of each packet.
    Instead(&'static [u8]),
    /// These bytes before each packet.
    Before(&'static [u8]),
    /// These bytes in place of the next packet, and zeros for ever after.
    Flood(&'static [u8]),
}

/// What happens to those who connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    /// Nobody listens: connection refused.
    Refuse,
    /// Connections are accepted and reset at once, so that they can be counted.
    Slam,
    /// Connections are accepted, and then there is silence.
    Silent,
    /// The queue of connections is full, so that nobody answers a SYN.
    Hole,
}

#[derive(Clone, Copy)]
struct Orders {
    target: SocketAddr,
    requests: Flow,
    replies: Flow,
    door: Door,
    /// Connections that were there before this was counted up are reset.
    resets: u64,
}

/// A proxy on a port of its own; it ends when it is dropped.
pub(crate) struct Proxy {
    port: u16,
    orders: watch::Sender<Orders>,
    accepted: Arc<Mutex<Vec<Instant>>>,
    _ends: oneshot::Sender<()>,
}

impl Proxy {
    /// A proxy in front of a port of this machine. It has a thread of its own, so that its tasks are not counted among
    /// those of the program under test.
    pub(crate) fn start(target: u16) -> Self {
        let target = SocketAddr::from(([127, 0, 0, 1], target));
        let orders =
            Orders { target, requests: Flow::Pass, replies: Flow::Pass, door: Door::Open, resets: 0 };
        let (orders, given) = watch::channel(orders);
        let (_ends, ended) = oneshot::channel();
        let accepted = Arc::new(Mutex::new(Vec::new()));
        // Below the ports that the kernel gives to clients: it is bound again after the door was closed.
        let port = sluicegate_tests::servers::free_port();
        let log = Arc::clone(&accepted);
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("there is room for a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! { () = listen(listener, port, given, log) => {}, _ = ended => {} }
            });
        });
        Self { port, orders, accepted, _ends }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn requests(&self, flow: Flow) {
        self.orders.send_modify(|orders| orders.requests = flow);
    }

    pub(crate) fn replies(&self, flow: Flow) {
        self.orders.send_modify(|orders| orders.replies = flow);
    }

    pub(crate) fn door(&self, door: Door) {
        self.orders.send_modify(|orders| orders.door = door);
    }

    /// Resets all connections there are.
    pub(crate) fn reset(&self) {
        self.orders.send_modify(|orders| orders.resets += 1);
    }

    /// When connections were accepted.
    pub(crate) fn accepted(&self) -> Vec<Instant> {
        self.accepted.lock().unwrap().clone()
    }
}

async fn listen(
    first: TcpListener,
    port: u16,
    mut orders: watch::Receiver<Orders>,
    accepted: Arc<Mutex<Vec<Instant>>>,
) {
    let mut listener = Some(first);
    let mut fillers = Vec::new();
    loop {
        let door = orders.borrow_and_update().door;
        match door {
            Door::Refuse => listener = None,
            Door::Hole => {
                listener = None;
                let hole = bind(port, 0).expect("the port is still ours");
                // What the kernel takes on its own fills the queue; the rest hangs, and that is the point.
                for _ in 0..4 {
                    fillers.push(tokio::spawn(TcpStream::connect(("127.0.0.1", port))));
                }
                while orders.borrow_and_update().door == Door::Hole {
                    if orders.changed().await.is_err() {
                        return;
                    }
                }
                drop(hole);
                fillers.clear();
                continue;
            }
            _ if listener.is_none() => listener = Some(bind(port, 128).expect("the port is still ours")),
            _ => {}
        }
        let next = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            client = next => {
                let Ok((client, _)) = client else { continue };
                accepted.lock().unwrap().push(Instant::now());
                tokio::spawn(connection(client, orders.clone()));
            }
            changed = orders.changed() => if changed.is_err() { return },
        }
    }
}

fn bind(port: u16, backlog: u32) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    socket.listen(backlog)
}

/// One connection, until both ends are done, it is cut, or it is reset.
async fn connection(mut client: TcpStream, orders: watch::Receiver<Orders>) {
    let given: Orders = *orders.borrow();
    let Orders { target, door, resets, .. } = given;
    if door == Door::Silent {
        until_reset(orders, resets).await;
        let _ = client.set_zero_linger();
        return;
    }
    let server = if door == Door::Slam { None } else { TcpStream::connect(target).await.ok() };
    let Some(mut server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let is_reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::try_join!(
                pump(from_client, to_server, orders.clone(), |orders| orders.requests),
                pump(from_server, to_client, orders.clone(), |orders| orders.replies),
            )
        };
        tokio::select! { _ = both => false, () = until_reset(orders.clone(), resets) => true }
    };
    if is_reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

async fn until_reset(mut orders: watch::Receiver<Orders>, resets: u64) {
    // The proxy is gone when the orders are.
    let _ = orders.wait_for(|orders| orders.resets != resets).await;
}

/// One direction of a connection. It reads at once whatever happens, and writes when and what the flow says.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut orders: watch::Receiver<Orders>,
    flow: fn(&Orders) -> Flow,
) -> io::Result<()> {
    let (packets, mut read) = mpsc::unbounded_channel();
    let looks = orders.clone();
    let reading = async move {
        let mut latest = Instant::now();
        loop {
            let mut packet = vec![0; 16 * 1024];
            let length = from.read(&mut packet).await?;
            packet.truncate(length);
            let now = flow(&looks.borrow());
            if let Flow::Delay { base, jitter } = now {
                latest =
                    latest.max(Instant::now() + base.saturating_sub(jitter) + 2 * jitter.mul_f64(random()));
            }
            if packets.send((latest, packet)).is_err() || length == 0 {
                return io::Result::Ok(());
            }
        }
    };
    let writing = async move {
        let mut passed = 0;
        while let Some((due, packet)) = read.recv().await {
            sleep_until(due.into()).await;
            // A closed end is held back as well: the other side of a black hole learns nothing.
            if orders.wait_for(|orders| flow(orders) != Flow::Hold).await.is_err() {
                break;
            }
            if packet.is_empty() {
                break;
            }
            let now = flow(&orders.borrow());
            match now {
                Flow::Pass | Flow::Hold | Flow::Delay { .. } => to.write_all(&packet).await?,
                Flow::Drip(pause) => {
                    for byte in packet {
                        to.write_all(&[byte]).await?;
                        sleep(pause).await;
                    }
                }
                Flow::CutAfter(most) => {
                    let rest = packet.len().min(most.saturating_sub(passed));
                    to.write_all(&packet[..rest]).await?;
                    passed += rest;
                    if passed >= most {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
                Flow::Instead(bytes) => to.write_all(bytes).await?,
                Flow::Before(bytes) => to.write_all(&[bytes, &packet].concat()).await?,
                Flow::Flood(bytes) => {
                    to.write_all(bytes).await?;
                    loop {
                        to.write_all(&[b'0'; 16 * 1024]).await?;
                        sleep(Duration::from_millis(2)).await;
                    }
                }
            }
        }
        to.shutdown().await
    };
    tokio::try_join!(reading, writing).map(|_| ())
}

/// A number from 0 up to 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // A 32-bit number is exact in an f64.
    f64::from(u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
