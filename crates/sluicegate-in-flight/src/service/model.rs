use loom::sync::Arc;
use loom::thread;
use sluicegate_core::clock::ManualClock;

use super::*;
use crate::pool::{Ended, QueuePlace};
use crate::{Class, InFlight};

/// A permit for all, and its one key.
fn one_permit(queue: usize) -> (Arc<ServicePermits>, Key) {
    let builder = InFlight::adaptive("api").at_least(1).at_most(1).queue(queue);
    let clock = std::sync::Arc::new(ManualClock::new());
    (Arc::new(ServicePermits::new(builder.settings, false, clock)), Key::from("ada"))
}

fn take(service: &ServicePermits, key: &Key) -> PermitRecord {
    match service.ask(&PermitAsk { key, class: Class::Critical, weight: 1, waits: false }) {
        PermitReply::Taken(record) => record,
        _ => unreachable!("nobody has it"),
    }
}

fn wait(service: &ServicePermits, key: &Key, class: Class) -> Seat {
    match service.ask(&PermitAsk { key, class, weight: 1, waits: true }) {
        PermitReply::Waiting(seat, _) => seat,
        _ => unreachable!("another has it, and there is room to wait"),
    }
}

fn ended(place: &QueuePlace) -> Option<Ended> {
    place.poll(&std::task::Context::from_waker(Waker::noop()))
}

#[test]
fn a_permit_that_comes_back_while_the_one_that_waits_gives_up_is_lost_in_no_order() {
    loom::model(|| {
        let (service, key) = one_permit(10);
        let begun = take(&service, &key);
        let seat = wait(&service, &key, Class::Critical);
        let (other, its_key) = (Arc::clone(&service), key.clone());
        let thread = thread::spawn(move || other.put_back(&its_key, &begun, true));
        service.give_up(&key, &seat, false);
        thread.join().unwrap();
        assert_eq!((service.in_use_in_all(), service.status().waiting), (0, [0; 4]));
    });
}

#[test]
fn of_two_that_wait_the_more_important_has_the_permit_that_comes_back_unless_it_came_after_it() {
    loom::model(|| {
        let (service, key) = one_permit(10);
        let begun = take(&service, &key);
        let low = wait(&service, &key, Class::Sheddable);
        let (other, its_key) = (Arc::clone(&service), key.clone());
        let thread = thread::spawn(move || other.put_back(&its_key, &begun, true));
        let high = wait(&service, &key, Class::CriticalPlus);
        thread.join().unwrap();
        assert_eq!(service.in_use_in_all(), 1);
        assert!(ended(&low.place).is_some() != ended(&high.place).is_some(), "one has it, and one waits");
    });
}

#[test]
fn a_request_that_loses_its_place_while_a_permit_comes_back_has_one_end() {
    loom::model(|| {
        let (service, key) = one_permit(1);
        let begun = take(&service, &key);
        let low = wait(&service, &key, Class::Sheddable);
        let (other, its_key) = (Arc::clone(&service), key.clone());
        let thread = thread::spawn(move || other.put_back(&its_key, &begun, true));
        let high = wait(&service, &key, Class::CriticalPlus);
        thread.join().unwrap();
        match ended(&low.place) {
            Some(Ended::Given) => assert_eq!(ended(&high.place), None),
            Some(Ended::Lost) => assert_eq!(ended(&high.place), Some(Ended::Given)),
            None => unreachable!("there is one place"),
        }
        service.give_up(&key, &low, false);
        service.give_up(&key, &high, false);
        assert_eq!((service.in_use_in_all(), service.status().waiting), (0, [0; 4]));
    });
}
