//! Whom a server behind a real nginx takes its clients for. All of 127.0.0.0/8 is this machine, so each party has an
//! address of its own: clients 127.0.0.5 and .6, nginx 127.0.0.8 and .9.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use sluicegate::key::OnMalformed;
use sluicegate::{ClientIp, Limit, Policy, RateLimitExt};
use sluicegate_tests::memory::store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::proxy::Nginx;
use crate::support::serve;

const CLIENT: [u8; 4] = [127, 0, 0, 5];
const NEIGHBOUR: [u8; 4] = [127, 0, 0, 6];

/// How nginx's own documentation passes addresses on.
const APPEND: &str = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
const OVERWRITE: &str = "proxy_set_header X-Real-IP $remote_addr;";
const FORWARDED: &str = r#"proxy_set_header Forwarded "$http_forwarded, for=$remote_addr;proto=$scheme";"#;

/// Answers with the address that it takes the client for.
fn app(client_ip: &ClientIp) -> Router {
    let client_ip = client_ip.clone();
    let answer = move |request: Request| async move {
        let address = client_ip.address(&request);
        address.map_or_else(|| "nobody".to_owned(), |ip| ip.to_string())
    };
    Router::new().route("/", any(answer))
}

fn behind_nginx() -> ClientIp {
    ClientIp::behind(["127.0.0.8/31"]).unwrap()
}

/// Status and body of the answer to a request with these lines, byte by byte.
async fn get(server: SocketAddr, client: [u8; 4], lines: &[u8]) -> (u16, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).expect("all of 127.0.0.0/8 is this machine");
    let mut stream = socket.connect(server).await.expect("the server listens");
    let close: &[u8] = if lines.starts_with(b"Connection") { b"" } else { b"Connection: close\r\n" };
    let request = [b"GET / HTTP/1.1\r\nHost: localhost\r\n", close, lines, b"\r\n"].concat();
    stream.write_all(&request).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a whole response");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

/// Whom the server takes a client for that sends these lines.
async fn taken_for(server: SocketAddr, lines: impl AsRef<[u8]>) -> String {
    let (status, body) = get(server, CLIENT, lines.as_ref()).await;
    assert_eq!(status, 200, "{body}");
    body
}

#[tokio::test]
async fn whatever_a_client_writes_into_the_list_it_is_who_connected_to_nginx() {
    let client_ip = behind_nginx();
    let server = serve(app(&client_ip)).await;
    let nginx = Nginx::in_front_of(&server.to_string(), APPEND);
    let long = format!("X-Forwarded-For: {}\r\n", "6.6.6.6, ".repeat(700));
    for (id, lines) in [
        ("B02", &b""[..]),
        ("B02", b"X-Forwarded-For: 6.6.6.6\r\n"),
        ("B03", b"X-Forwarded-For: 6.6.6.6, 127.0.0.9\r\n"),
        ("B04", b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\n"),
        ("B05", b"X-Forwarded-For: \r\n"),
        ("B05", b"X-Forwarded-For: ,,, ,\r\n"),
        ("B06", b"Forwarded: for=1.1.1.1\r\nX-Real-IP: 2.2.2.2\r\nX-Forwarded-For: 3.3.3.3\r\n"),
        ("B07", b"X-Forwarded-For: unknown\r\n"),
        ("B10", b"x-forwarded-for:\t6.6.6.6\t,\t\r\n"),
        ("B11", b"X-Forwarded-For: fe80::1%eth0\r\n"),
        ("B18", long.as_bytes()),
        ("B19", b"X-Forwarded-For: \x80\xff\r\n"),
        ("B23", b"X_Forwarded_For: 6.6.6.6\r\nX.Forwarded.For: 6.6.6.6\r\n"),
        ("B24", b"Connection: close, X-Forwarded-For\r\nX-Forwarded-For: 6.6.6.6\r\n"),
    ] {
        assert_eq!(taken_for(nginx.address, lines).await, "127.0.0.5", "{id}");
    }
    // Past nginx, the same client is the same: who is no proxy is not believed.
    assert_eq!(taken_for(server, "X-Forwarded-For: 6.6.6.6\r\n").await, "127.0.0.5", "B01");
}

#[tokio::test]
async fn behind_two_proxies_both_are_walked_over() {
    let server = serve(app(&behind_nginx())).await;
    let nginx = Nginx::twice_in_front_of(server, APPEND);
    for lines in
        ["", "X-Forwarded-For: 6.6.6.6\r\n", "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 127.0.0.8\r\n"]
    {
        assert_eq!(taken_for(nginx.address, lines).await, "127.0.0.5", "{lines}");
    }
    let server = serve(app(&ClientIp::hops(2).unwrap())).await;
    let nginx = Nginx::twice_in_front_of(server, APPEND);
    assert_eq!(taken_for(nginx.address, "X-Forwarded-For: 6.6.6.6, 7.7.7.7\r\n").await, "127.0.0.5");
}

#[tokio::test]
async fn forwarded_is_read_where_nginx_appends_to_it() {
    let server = serve(app(&behind_nginx().forwarded())).await;
    let nginx = Nginx::in_front_of(&server.to_string(), FORWARDED);
    for lines in [
        "",
        "Forwarded: for=6.6.6.6\r\n",
        "Forwarded: for=\"[2001:db8::17]:4711\";by=\"a,b\"\r\n",
        "Forwarded: for=\"6.6.6.6\r\n",
        "Forwarded: for=\"6.6.6.6\\\r\n",
        "Forwarded: for=_hidden;;;=\r\n",
        "X-Forwarded-For: 6.6.6.6\r\n",
    ] {
        assert_eq!(taken_for(nginx.address, lines).await, "127.0.0.5", "{lines}");
    }
}

#[tokio::test]
async fn a_header_that_nginx_overwrites_is_nginxs_word() {
    let client_ip = behind_nginx().header("x-real-ip").unwrap().on_malformed(OnMalformed::Reject);
    let server = serve(app(&client_ip)).await;
    let nginx = Nginx::in_front_of(&server.to_string(), OVERWRITE);
    for lines in [
        "",
        "X-Real-IP: 6.6.6.6\r\n",
        "X-Real-IP: 6.6.6.6\r\nX-Real-IP: 7.7.7.7\r\n",
        "X_Real_IP: 6.6.6.6\r\n",
        "Connection: close, X-Real-IP\r\n",
    ] {
        assert_eq!(taken_for(nginx.address, lines).await, "127.0.0.5", "{lines}");
    }
}

/// B05 and B24: that is a mistake in nginx's configuration, and costs the clients, not the server.
#[tokio::test]
async fn clients_of_an_nginx_that_passes_no_address_on_share_its_bucket() {
    let client_ip = behind_nginx();
    let (store, _) = store();
    let limiter = Policy::gcra("api", "2/min").on(&store).unwrap();
    let app = app(&client_ip).rate_limit(Limit::new(limiter).key(client_ip.clone()));
    let server = serve(app).await;
    let nginx = Nginx::in_front_of(&server.to_string(), "");
    let mut answers = Vec::new();
    for client in [CLIENT, NEIGHBOUR, CLIENT, NEIGHBOUR] {
        answers.push(get(nginx.address, client, b"").await);
    }
    assert_eq!(answers[..2], [(200, "127.0.0.9".into()), (200, "127.0.0.9".into())]);
    assert_eq!([answers[2].0, answers[3].0], [429, 429]);
    assert_eq!(client_ip.faults().missing, 4);
}

#[tokio::test]
async fn lies_buy_no_second_bucket_and_no_neighbour_pays_for_them() {
    let client_ip = behind_nginx();
    let (store, _) = store();
    let limiter = Policy::gcra("api", "2/min").on(&store).unwrap();
    let server = serve(app(&client_ip).rate_limit(Limit::new(limiter).key(client_ip))).await;
    let nginx = Nginx::in_front_of(&server.to_string(), APPEND);
    let mut statuses = Vec::new();
    for lie in ["6.6.6.6", "7.7.7.7", "127.0.0.6", "unknown", "::1, 127.0.0.9"] {
        statuses.push(get(nginx.address, CLIENT, format!("X-Forwarded-For: {lie}\r\n").as_bytes()).await.0);
    }
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    assert_eq!(get(nginx.address, NEIGHBOUR, b"").await, (200, "127.0.0.6".into()));
}

/// B12 and B16: on a dual-stack socket every IPv4 peer has a mapped address.
#[tokio::test]
async fn behind_a_dual_stack_socket_nginx_is_still_known() {
    let listener = TcpListener::bind("[::]:0").await.expect("this machine has IPv6");
    let port = listener.local_addr().unwrap().port();
    let service = app(&behind_nginx()).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await.expect("the server runs") });
    let nginx = Nginx::in_front_of(&format!("127.0.0.1:{port}"), APPEND);
    assert_eq!(taken_for(nginx.address, "X-Forwarded-For: 6.6.6.6\r\n").await, "127.0.0.5");
    let direct = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(taken_for(direct, "X-Forwarded-For: 6.6.6.6\r\n").await, "127.0.0.5");
}

/// B27: there is no peer address behind a Unix socket, and nobody else who could connect.
#[tokio::test]
async fn behind_a_unix_socket_nginx_is_believed_where_that_is_said() {
    for (client_ip, expected) in [
        (ClientIp::insecure_behind_anyone().header("x-real-ip").unwrap(), "127.0.0.5"),
        (ClientIp::hops(1).unwrap(), "127.0.0.5"),
        (behind_nginx(), "nobody"),
    ] {
        let folder = Nginx::free_port().1;
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("app");
        let listener = UnixListener::bind(&socket).unwrap();
        let app = app(&client_ip);
        tokio::spawn(async { axum::serve(listener, app).await.expect("the server runs") });
        let both = format!("{APPEND} {OVERWRITE}");
        let nginx = Nginx::in_front_of(&format!("unix:{}", socket.display()), &both);
        let lies = "X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n";
        assert_eq!(taken_for(nginx.address, lies).await, expected);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
