//! A proxy in front that no extractor knows of is logged. It is said once per process, so the test has one of its own.

use http::Request;
use http::request::Parts;
use sluicegate_tests::log::lines_of;
use sluicegate_tests::process::alone;
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::{ClientIp, KeyExtractor, PeerIp};

fn request(peer: &str, header: Option<&str>) -> Parts {
    let request = Request::get("/").extension(PeerAddr(peer.parse().unwrap()));
    let request = header.into_iter().fold(request, |request, name| request.header(name, "198.51.100.7"));
    request.body(()).unwrap().into_parts().0
}

#[test]
fn a_forwarded_header_that_no_extractor_reads_is_worth_one_line() {
    alone(|| {
        // Five clients behind a proxy shared one bucket, and nothing said so.
        let peer = PeerIp::new();
        let lines = lines_of(|| {
            drop(peer.extract((&request("10.0.0.9:1", None)).into()));
            drop(peer.extract((&request("10.0.0.9:1", Some("x-real-ip"))).into()));
        });
        assert_eq!(lines, [""; 0]);
        let lines = lines_of(|| {
            for header in ["forwarded", "x-forwarded-for"] {
                drop(peer.extract((&request("10.0.0.9:1", Some(header))).into()));
                drop(PeerIp::new().extract((&request("10.0.0.9:1", Some(header))).into()));
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("WARN") && lines[0].contains("ClientIp::behind"), "{lines:?}");
        assert!(
            !lines[0].contains("198.51.100.7") && !lines[0].contains("10.0.0.9"),
            "no key is logged: {lines:?}"
        );

        // Nor did anything say that the networks of the proxies were wrong.
        let client_ip = ClientIp::behind(["172.16.0.0/12"]).unwrap();
        let lines = lines_of(|| {
            for client_ip in [&client_ip, &client_ip.clone()] {
                drop(client_ip.extract((&request("172.16.0.1:1", Some("x-forwarded-for"))).into()));
                drop(client_ip.extract((&request("10.0.0.9:1", None)).into()));
                drop(client_ip.extract((&request("10.0.0.9:1", Some("forwarded"))).into()));
                drop(client_ip.extract((&request("10.0.0.9:1", Some("x-forwarded-for"))).into()));
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("none of the named proxies") && lines[0].contains("x-forwarded-for"),
            "{lines:?}"
        );
    });
}
