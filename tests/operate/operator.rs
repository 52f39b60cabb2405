//! An operator who has never seen the page, on the way from an alarm to its cause, to a tightened limit and back.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use sluicegate::clock::ManualClock;
use sluicegate::observed::Observed;
use sluicegate::status::StatusPage;
use sluicegate::{Policy, RateLimiter};

use crate::operate::browser::Page;
use crate::operate::status::{operator, serve, tab_to};

/// A service with one policy for its logins, and its page.
struct Scene {
    clock: ManualClock,
    login: RateLimiter,
    url: String,
}

impl Scene {
    /// The policy has these two quotas.
    async fn new([quota, other]: [&str; 2]) -> Self {
        /// Of the services of one process, each has a name of its own.
        static SERVICES: AtomicU32 = AtomicU32::new(0);
        let name = format!("operator-{}", SERVICES.fetch_add(1, Ordering::Relaxed));
        let (store, clock) = sluicegate_tests::memory::store();
        let store = Observed::named(name, store).unwrap();
        let login =
            Policy::gcra("login", quota).and(other).suspend(2_000, "10min", "30min").on(&store).unwrap();
        let page = StatusPage::new(&store)
            .guard(|request| request.headers.get("x-operator")?.to_str().ok().map(str::to_owned))
            .secret([7; 32])
            .host("127.0.0.1")
            .instance("web-3")
            .build()
            .unwrap();
        let address = serve(Router::new().nest_service("/status", page)).await;
        Self { clock, login, url: format!("http://{address}/status") }
    }

    /// Requests of these addresses in turn, one in each of these times.
    fn ask(&self, times: u32, apart: Duration, address: impl Fn(u32) -> Ipv4Addr) {
        for turn in 0..times {
            self.clock.advance(apart);
            _ = self.login.check(address(turn)).now().unwrap().unwrap();
        }
    }

    /// Ten people for half an hour.
    fn people(&self) {
        self.ask(18_000, Duration::from_millis(100), |turn| Ipv4Addr::from(0x0A00_0000 + turn % 10 * 65_536));
    }

    fn quotas(&self) -> String {
        self.login.policy().to_string()
    }
}

/// The sentence at the top.
async fn sentence(page: &mut Page) -> String {
    page.value_of("document.querySelector('.sentence').innerText").await.as_str().unwrap().to_owned()
}

/// The text of the first button.
async fn first_button(page: &mut Page) -> Value {
    page.value_of("document.querySelector('button').innerText").await
}

#[tokio::test]
async fn the_first_sentence_answers_a_stranger_and_the_key_has_twice_its_quota_after_two_clicks() {
    let scene = Scene::new(["6/min", "200/h"]).await;
    scene.ask(1, Duration::ZERO, |_| Ipv4Addr::new(198, 51, 100, 7));
    scene.clock.advance(Duration::from_secs(1_200));
    // Seven minutes of two a second.
    scene.ask(840, Duration::from_millis(500), |_| Ipv4Addr::new(203, 0, 113, 9));
    let mut page = operator("operator").await;
    page.without_scripts().await;
    page.looks(1200, "light").await;
    page.open(&scene.url).await;
    let text = sentence(&mut page).await;
    let expected =
        "login refuses 1.9 a second since 22:20 UTC, all of it one address, 203.0.113.9; the store answers";
    assert!(text.starts_with(expected) && text.ends_with("; nothing else is unusual."), "{text}");
    page.picture("operator-1200").await;
    assert_eq!(first_button(&mut page).await, "look up 203.0.113.9");
    page.click("document.querySelector('button')").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(
        text.contains("203.0.113.9 is refused with 429") && text.contains("of 6 left, back in"),
        "{text}"
    );
    page.picture("operator-found-1200").await;
    // The form says twice the quotas, and an hour.
    let field = page.value_of("document.getElementById('give-login').value").await;
    assert_eq!(field, "12/min, 400/h");
    page.click("document.querySelector('form.give button')").await;
    assert_eq!(page.loaded().await, 200);
    let capacity =
        async |last: u8| scene.login.peek(Ipv4Addr::new(203, 0, 113, last)).await.unwrap().capacity();
    assert_eq!((capacity(9).await, capacity(8).await), (12, 6));
    let text = page.text().await;
    for said in [
        "login for 203.0.113.9: 12/min, 400/h, by ada, on this instance only",
        "This key alone has 12/min, 400/h by ada until 23:27:00 UTC",
        "of 12 left",
        "1 key has quotas from an operator",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    page.picture("operator-given-1200").await;
    page.click("document.querySelector('.found form button[value=withdraw]')").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!((capacity(9).await, scene.quotas().as_str()), (6, "login: 6/min, 200/h (gcra)"));
}

/// Four presses and one field, from the first look to the end.
#[tokio::test]
async fn a_key_has_three_times_its_quota_and_then_its_own_by_keyboard_alone_at_390_px_with_scripts_off() {
    let scene = Scene::new(["6/min", "200/h"]).await;
    scene.ask(840, Duration::from_millis(500), |_| Ipv4Addr::new(203, 0, 113, 9));
    let mut page = operator("keyboard").await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    page.open(&scene.url).await;
    let text = sentence(&mut page).await;
    assert!(text.contains("all of it one address, 203.0.113.9; the store answers"), "{text}");
    tab_to(&mut page, "element.innerText === 'look up 203.0.113.9'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    // Tab selects what a field says, so that the first digit takes its place.
    tab_to(&mut page, "element.id === 'give-login'").await;
    page.write("18/min, 600/h").await;
    tab_to(&mut page, "element.innerText === 'give it now'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    let capacity = async || scene.login.peek(Ipv4Addr::new(203, 0, 113, 9)).await.unwrap().capacity();
    assert_eq!((capacity().await, scene.quotas().as_str()), (18, "login: 6/min, 200/h (gcra)"));
    let text = page.text().await;
    assert!(text.contains("This key alone has 18/min, 600/h by ada until "), "{text}");
    assert!(text.contains("key quota given"), "it is among the events: {text}");
    let fits = page.value_of("document.documentElement.scrollWidth <= window.innerWidth").await;
    assert_eq!(fits, true, "nothing is beside the window");
    page.picture("operator-given-390").await;
    tab_to(&mut page, "element.innerText === 'end its quotas'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(capacity().await, 6);
    assert!(page.text().await.contains("key quota over"), "its end is, too");
}

#[tokio::test]
async fn from_the_alarm_to_a_tightened_limit_and_back_takes_two_presses_at_390_px_with_scripts_off() {
    let scene = Scene::new(["100/min", "9000/h"]).await;
    scene.people();
    // Two hundred addresses of one network for a minute.
    scene.ask(600, Duration::from_millis(100), |turn| Ipv4Addr::from(0xC633_6400 + turn % 200));
    let mut page = operator("tighten").await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    page.open(&scene.url).await;
    let text = sentence(&mut page).await;
    assert!(text.starts_with("Nothing is refused; login lets in 10.0 a second"), "{text}");
    assert!(text.contains("; alarm since 22:3") && text.contains("login a minute: "), "{text}");
    assert!(page.text().await.contains("198.51.100.0/24 ("), "the network is named");
    page.picture("operator-alarm-390").await;
    assert_eq!(first_button(&mut page).await, "tighten login to 50/min, 9000/h for 30min");
    tab_to(&mut page, "element.tagName === 'BUTTON'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(scene.quotas(), "login: 50/min, 9000/h (gcra)");
    let text = sentence(&mut page).await;
    assert!(text.contains("; login is changed by ada until 23:0"), "{text}");
    page.picture("operator-tightened-390").await;
    tab_to(&mut page, "element.innerText === 'end the change of login'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(scene.quotas(), "login: 100/min, 9000/h (gcra)");
}

#[tokio::test]
async fn at_the_alarm_itself_it_is_tightened_to_another_number_for_another_time_and_the_end_stands_there() {
    let scene = Scene::new(["100/min", "9000/h"]).await;
    scene.people();
    scene.ask(600, Duration::from_millis(100), |turn| Ipv4Addr::from(0xC633_6400 + turn % 200));
    let mut page = operator("at-alarm").await;
    page.looks(1200, "dark").await;
    page.open(&scene.url).await;
    for (field, text) in [("tighten-login", "1/min, 20/h"), ("tighten-for-login", "10min")] {
        page.value_of(&format!("document.getElementById('{field}').value = ''")).await;
        page.click(&format!("document.getElementById('{field}')")).await;
        page.write(text).await;
    }
    page.picture("operator-alarm-1200").await;
    page.click("document.querySelector('form.tighten button')").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(scene.quotas(), "login: 1/min, 20/h (gcra)");
    assert_eq!(page.value_of("document.querySelectorAll('form.tighten').length").await, json!(0));
    page.click("document.querySelector('.notice.problem button')").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(scene.quotas(), "login: 100/min, 9000/h (gcra)");
}

/// It spoke of buttons that a page does not have, or that only some settings bring.
#[tokio::test]
async fn the_runbook_names_only_buttons_that_are_on_the_page() {
    let runbook = include_str!("../../crates/sluicegate/docs/operating.md");
    let (_, runbook) = runbook.split_once("# At three in the morning").unwrap();
    let named: Vec<&str> = runbook.split("**").skip(1).step_by(2).collect();
    assert!(named.len() > 8, "{named:?}");
    let scene = Scene::new(["100/min", "9000/h"]).await;
    scene.people();
    scene.ask(600, Duration::from_millis(100), |turn| Ipv4Addr::from(0xC633_6400 + turn % 200));
    scene.ask(200, Duration::from_millis(1), |_| Ipv4Addr::new(203, 0, 113, 9));
    let mut page = operator("runbook").await;
    page.open(&scene.url).await;
    let texts =
        "[...document.querySelectorAll('button, summary')].map(it => it.textContent.trim()).join('\\n')";
    let mut seen = page.value_of(texts).await.as_str().unwrap().to_owned();
    for step in ["form.tighten button", ".offenders button[value=look-up]"] {
        page.click(&format!("document.querySelector('{step}')")).await;
        assert_eq!(page.loaded().await, 200);
        seen = seen + "\n" + page.value_of(texts).await.as_str().unwrap();
    }
    for button in named {
        assert!(seen.lines().any(|text| text == button), "{button}: {seen}");
    }
}
