//! What is worth a line in the log, and how many lines.

use sluicegate_tests::log::lines_of;
use sluicegate_tower::ClientIp;

use super::parts::{PROXY, behind_ten, found, from};

#[test]
fn each_kind_of_fault_is_logged_once_and_repeats_nothing_that_was_sent() {
    let client_ip = behind_ten();
    let lines = lines_of(|| {
        for list in
            [&[][..], &[("x-forwarded-for", "evil\u{e4}")], &[("x-forwarded-for", "198.51.100.7")], &[]]
        {
            for _ in 0..3 {
                assert!(found(&client_ip.clone(), &from(PROXY, list)).is_ok());
            }
        }
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, part) in lines.iter().zip(["is missing", "is unreadable"]) {
        assert!(line.contains("WARN") && line.contains(part) && line.contains("x-forwarded-for"), "{line}");
        assert!(!line.contains("evil"), "{line}");
    }
    assert_eq!((client_ip.faults().missing, client_ip.faults().unreadable), (6, 3));
}

#[test]
fn a_network_with_bits_behind_its_prefix_is_worth_a_warning() {
    let lines = lines_of(|| {
        ClientIp::behind(["10.0.0.1/8", "10.0.0.0/8", "192.0.2.1", "::1"]).unwrap();
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("10.0.0.1/8") && lines[0].contains("is taken as 10.0.0.0/8"), "{lines:?}");
}
