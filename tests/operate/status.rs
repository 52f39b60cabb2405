//! The status page in a browser, against a service under way.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;
use sluicegate::key::{HeaderKey, KeyKind, PeerAddr, RequestView};
use sluicegate::limits::{Limits, LimitsHandle, path_in};
use sluicegate::observed::Observed;
use sluicegate::overflow::line::{LineMode, MemoryLine};
use sluicegate::overflow::{WaitingRoom, WaitingRoomLayer};
use sluicegate::status::StatusPage;
use sluicegate::{Key, KeyExtractor, Limit, PeerIp, Policy, RateLimiter};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt, service_fn};

use crate::operate::browser::Page;

const SCRIPT: &str = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>";
const PLANTED: &str = "sk_live_51Hx7planted";

struct Service {
    address: SocketAddr,
    login: RateLimiter,
    /// A budget of which a key has used more than half.
    tokens: RateLimiter,
    sale: WaitingRoom,
}

impl Service {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await.expect("the server runs") });
    address
}

/// A service after an hour of traffic, whose time stands still since. It has refused some requests, among them of a caller whose
/// name and header are scripts.
async fn service() -> Service {
    /// Of the services of one process, each has a name of its own.
    static SERVICES: AtomicU32 = AtomicU32::new(0);
    let name = format!("memory-{}", SERVICES.fetch_add(1, Ordering::Relaxed));
    let (store, clock) = sluicegate_tests::memory::store();
    let store = Observed::named(name, store).unwrap();
    let login = Policy::sliding_counter("login", "5/min")
        .and("20/h")
        .suspend(100, "10min", "30min")
        .on(&store)
        .unwrap();
    let tighter = Policy::gcra("tighter", "2/min").shadow().on(&store).unwrap();
    let api = Policy::gcra("api", "40/min").on(&store).unwrap();
    let limits =
        Limits::builder(Limit::new(login.clone()).key(PeerIp::new()).only_if(path_in(["/login"]).unwrap()))
            .and(Limit::new(tighter).key(HeaderKey::new("x-tenant").unwrap().of_kind(KeyKind::Name)))
            .and(Limit::new(api.clone()).key(HeaderKey::new("x-api-key").unwrap()))
            .build()
            .unwrap();
    let tokens = Policy::gcra("tokens", "1000/month").on(&store).unwrap();
    for (key, cost) in [("acme", 620), (SCRIPT, 999)] {
        _ = tokens.check(Key::from(key).of_kind(KeyKind::Name)).cost(cost).await.unwrap();
    }
    let user = Limits::new(Limit::new(api).key(HeaderKey::new("x-api-key").unwrap()));
    for minute in 0..60_u64 {
        for number in 0..minute * minute % 170 {
            let request = http::Request::get("/").header("x-api-key", number % 2).body(()).unwrap();
            _ = user.decide(&request.into_parts().0).await;
        }
        clock.advance(Duration::from_secs(60));
    }
    for _ in 0..12 {
        let request = http::Request::get("/login").header("x-tenant", SCRIPT).header("x-api-key", PLANTED);
        let peer = PeerAddr(SocketAddr::from(([203, 0, 113, 9], 1)));
        let (head, ()) = request.extension(peer).body(()).unwrap().into_parts();
        // Most are refused.
        _ = limits.decide(&head).await;
    }
    let operator =
        |request: RequestView<'_>| request.headers.get("x-operator")?.to_str().ok().map(str::to_owned);
    let sale = WaitingRoom::builder("sale", "6/min").build(MemoryLine::new()).unwrap();
    let shop = service_fn(|_: http::Request<()>| async {
        Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
    });
    for _ in 0..5 {
        // The first is let in, the others wait.
        let request = http::Request::get("/").body(()).unwrap();
        _ = WaitingRoomLayer::new(sale.clone()).layer(shop).oneshot(request).await;
    }
    let builder = || {
        let limits = LimitsHandle::new(limits.clone());
        StatusPage::new(&store).limits("api", limits).room(sale.clone()).instance(format!("web-3 {SCRIPT}"))
    };
    let page = builder().guard(operator).secret([7; 32]).host("127.0.0.1").build().unwrap();
    let open = builder().unguarded_and_read_only().build().unwrap();
    let app = Router::new()
        .nest_service("/status", page.clone())
        .route_service("/status.json", page)
        .nest_service("/open", open);
    Service { address: serve(app).await, login, tokens, sale }
}

/// The browser of an operator.
pub(crate) async fn operator(name: &str) -> Page {
    let mut page = Page::new(name).await;
    page.always_send("x-operator", "ada").await;
    page
}

#[tokio::test]
async fn a_quota_is_changed_and_put_back_by_keyboard_alone_with_scripts_off() {
    let service = service().await;
    let mut page = operator("change").await;
    page.without_scripts().await;
    page.looks(390, "dark").await;
    page.open(&service.url("/status")).await;
    tab_to(&mut page, "element.ariaLabel === 'change login'").await;
    page.press("Enter").await;
    tab_to(&mut page, "element.id === 'quota-login'").await;
    page.write("10/min, 40/h").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(text.contains("login: 10/min, 40/h, by ada, on this instance only"), "{text}");
    assert_eq!(service.login.policy().to_string(), "login: 10/min, 40/h (sliding-counter)");
    page.picture("status-changed").await;
    tab_to(&mut page, "element.ariaLabel === 'change login'").await;
    page.press("Enter").await;
    tab_to(&mut page, "element.value === 'withdraw'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(service.login.policy().to_string(), "login: 5/min, 20/h (sliding-counter)");
    // All of them, which has to be meant: the browser sends nothing before the box is ticked.
    tab_to(&mut page, "element.innerText === 'stop refusing: all policies'").await;
    page.press("Enter").await;
    tab_to(&mut page, "element.id === 'confirm'").await;
    page.press(" ").await;
    tab_to(&mut page, "element.value === 'all-to-shadow'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!(service.login.policy().mode().to_string(), "shadow");
}

#[tokio::test]
async fn a_room_is_slowed_paused_and_opened_by_keyboard_alone_with_scripts_off_while_visitors_wait() {
    let service = service().await;
    let mut page = operator("room").await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    page.open(&service.url("/status")).await;
    tab_to(&mut page, "element.ariaLabel === 'change the room sale'").await;
    page.press("Enter").await;
    tab_to(&mut page, "element.id === 'rate-of-sale'").await;
    page.write("3/min").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(text.contains("sale: 3/min metered"), "{text}");
    page.picture("status-room").await;
    for (button, mode) in [("pause sale", LineMode::Paused), ("let in by the rate: sale", LineMode::Metered)]
    {
        tab_to(&mut page, "element.ariaLabel === 'change the room sale'").await;
        page.press("Enter").await;
        tab_to(&mut page, &format!("element.ariaLabel === '{button}'")).await;
        page.press("Enter").await;
        assert_eq!(page.loaded().await, 200);
        assert_eq!(service.sale.status().mode, mode);
    }
    // The browser sends nothing before the box is ticked.
    tab_to(&mut page, "element.ariaLabel === 'change the room sale'").await;
    page.press("Enter").await;
    tab_to(&mut page, "element.id === 'open-sale'").await;
    page.press(" ").await;
    tab_to(&mut page, "element.ariaLabel === 'open sale to all'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    assert_eq!((service.sale.status().mode, service.sale.status().rate.limit()), (LineMode::Open, 3));
    let text = page.text().await;
    assert!(text.contains("ada: room mode changed sale metered → open"), "{text}");
}

/// Text whose contrast with what is behind it is below 4.5, and fields and buttons that have no name.
const WHAT_IS_HARD_TO_READ: &str = r#"(() => {
    const parts = color => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const color = parts(getComputedStyle(at).backgroundColor);
            if (color[3] !== 0) return color;
        }
        return [255, 255, 255];
    };
    const faint = [...document.querySelectorAll("body *")]
        .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
        .map(element => {
            const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
            return [element.outerHTML.slice(0, 80), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
        })
        .filter(([, contrast]) => contrast < 4.5)
        .map(([element, contrast]) => `${contrast.toFixed(2)}: ${element}`);
    const fields = [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, [role=img]")];
    const nameless = fields
        .filter(field => !(field.labels && [...field.labels].some(label => label.textContent.trim()))
            && !field.getAttribute("aria-label") && !(/BUTTON|A/.test(field.tagName) && field.textContent.trim()))
        .map(field => `no name: ${field.outerHTML.slice(0, 80)}`);
    const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
    const twice = ids.filter((id, index) => ids.indexOf(id) !== index).map(id => `twice: #${id}`);
    const wide = [...document.querySelectorAll("body *:not(.skip, thead, thead *)")]
        .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
        .map(element => `too wide: ${element.outerHTML.slice(0, 80)}`);
    return [...faint, ...nameless, ...twice, ...wide];
})()"#;

#[tokio::test]
async fn the_page_is_readable_at_both_widths_in_both_colours_with_names_for_all_fields() {
    let service = service().await;
    let mut page = operator("looks").await;
    for width in [390, 1200] {
        for colours in ["light", "dark"] {
            page.looks(width, colours).await;
            assert_eq!(page.open(&service.url("/status")).await, 200);
            let ground = page.value_of("getComputedStyle(document.body).backgroundColor").await;
            let expected = if colours == "light" { "rgb(255, 255, 255)" } else { "rgb(15, 20, 25)" };
            assert_eq!(ground, expected, "the style sheet is there, and follows the browser");
            page.picture(&format!("status-{width}-{colours}")).await;
            page.value_of("document.querySelectorAll('details').forEach(details => details.open = true)")
                .await;
            assert_eq!(page.value_of(WHAT_IS_HARD_TO_READ).await, json!([]), "{width} {colours}");
            page.picture(&format!("status-{width}-{colours}-open")).await;
            // A link turns the colours, whatever the browser likes.
            let other = if colours == "light" { "dark" } else { "light" };
            page.open(&service.url(&format!("/status?theme={other}"))).await;
            assert_ne!(page.value_of("getComputedStyle(document.body).backgroundColor").await, ground);
        }
    }
}

/// Goes on from field to field until this holds of the one that has the focus.
pub(crate) async fn tab_to(page: &mut Page, focused: &str) {
    for _ in 0..80 {
        page.press("Tab").await;
        if page.value_of(&format!("(element => {focused})(document.activeElement)")).await == true {
            return;
        }
    }
    panic!("the keyboard does not come to {focused}");
}

#[tokio::test]
async fn a_key_is_looked_up_and_reset_by_keyboard_alone_with_scripts_off() {
    let service = service().await;
    let remaining = async || service.login.peek(Ipv4Addr::new(203, 0, 113, 9)).await.unwrap().remaining();
    assert_eq!(remaining().await, 0);
    let mut page = operator("keyboard").await;
    page.without_scripts().await;
    page.looks(1440, "light").await;
    page.open(&service.url("/status/")).await;
    tab_to(&mut page, "element.name === 'request.path'").await;
    page.write("/login").await;
    tab_to(&mut page, "element.name === 'request.peer'").await;
    page.write("203.0.113.9").await;
    tab_to(&mut page, "element.name === 'request.headers'").await;
    page.write(&format!("x-api-key: {PLANTED}")).await;
    tab_to(&mut page, "element.value === 'look-up'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(
        text.contains("The request is refused with 429") && text.contains("0 of 5 left, back in"),
        "{text}"
    );
    let html = page.value_of("document.documentElement.outerHTML").await.to_string();
    assert!(!html.contains(PLANTED), "{html}");
    page.picture("status-looked-up").await;
    for (button, done) in
        [("reset", "the key is reset"), ("suspend", "back in 30 min"), ("release", "5 of 5 left")]
    {
        tab_to(&mut page, &format!("element.value === '{button}'")).await;
        page.press("Enter").await;
        assert_eq!(page.loaded().await, 200);
        let text = page.text().await;
        assert!(text.contains(done), "{button}: {text}");
    }
    assert_eq!(remaining().await, 5);
    // Loading the page again asks nothing of the operator and does nothing again.
    let _ = service.login.check(Ipv4Addr::new(203, 0, 113, 9)).await.unwrap();
    page.value_of("location.reload()").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(text.contains("the key is released") && text.contains("4 of 5 left"), "{text}");
    assert_eq!(remaining().await, 4);
    let address = page.value_of("location.search").await.to_string();
    assert!(address.contains("result=") && !address.contains("203.0"), "{address}");
}

#[tokio::test]
async fn a_key_near_the_end_of_its_budget_is_looked_up_by_keyboard_alone_with_scripts_off() {
    let service = service().await;
    let mut page = operator("budget").await;
    page.without_scripts().await;
    page.looks(390, "light").await;
    page.open(&service.url("/status")).await;
    let text = page.text().await;
    assert!(text.contains("620 of 1,000") && text.contains("62 %") && text.contains("99 %"), "{text}");
    assert_eq!(page.value_of("document.querySelectorAll('meter').length").await, 2);
    page.picture("status-budgets-390").await;
    tab_to(&mut page, "element.ariaLabel === 'look up: \"acme\" of tokens'").await;
    page.press("Enter").await;
    assert_eq!(page.loaded().await, 200);
    let text = page.text().await;
    assert!(text.contains("380 of 1,000 left"), "{text}");
    let left = service.tokens.peek(Key::from("acme").of_kind(KeyKind::Name)).await.unwrap().remaining();
    assert_eq!(left, 380, "a look spends nothing");
}

#[tokio::test]
async fn foreign_pages_can_neither_send_a_form_nor_frame_the_page() {
    let service = service().await;
    let remaining = async || service.login.peek(Ipv4Addr::new(203, 0, 113, 9)).await.unwrap().remaining();
    let mut page = operator("foreign").await;
    page.open(&service.url("/status")).await;
    let token = page.value_of("document.querySelector('input[name=token]').value").await;
    let status = service.url("/status");
    // The worst case: a token was stolen, and the operator's browser sends whatever it sends to us.
    let form = format!(
        "<form method=post action='{status}'><input name=token value={token}><input name=do value=reset>\
         <input name=policy value=login><input name=key value=203.0.113.9></form>\
         <iframe src='{status}'></iframe>"
    );
    let foreign = serve(Router::new().route("/", get(|| async { Html(form) }))).await;
    for host in ["127.0.0.1", "localhost"] {
        page.open(&format!("http://{host}:{}/", foreign.port())).await;
        let frames = page.frames().await;
        // That of another site is in a process of its own.
        assert_eq!(frames.len(), usize::from(host == "127.0.0.1"));
        assert!(frames.iter().all(|frame| frame.starts_with("chrome-error:")), "{frames:?}");
        page.value_of("document.forms[0].submit()").await;
        assert_eq!(page.loaded().await, 403, "{host}");
        assert_eq!(remaining().await, 0, "{host}");
    }
    // The page's own form goes through.
    page.open(&status).await;
    page.value_of(
        "document.querySelectorAll('form.look-up')[1].querySelector('[name=key]').value = '203.0.113.9'",
    )
    .await;
    page.value_of("document.querySelectorAll('form.look-up')[1].querySelector('button').click()").await;
    assert_eq!(page.loaded().await, 200);
    // And without a token it does not.
    page.value_of("document.querySelectorAll('[name=token]').forEach(field => field.remove())").await;
    page.value_of("document.querySelector('form.look-up button').click()").await;
    assert_eq!(page.loaded().await, 403);
}
