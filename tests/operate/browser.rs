//! A real browser: headless Chromium, driven over its DevTools protocol.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// One page of a browser that ends with it.
pub(crate) struct Page {
    socket: WebSocketStream<TcpStream>,
    session: Value,
    calls: u64,
    /// Events that nobody has waited for yet.
    events: Vec<Value>,
    /// Dropped last.
    _browser: Browser,
}

struct Browser {
    process: Child,
    profile: PathBuf,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have gone already, and its files with it.
        _ = self.process.kill();
        _ = self.process.wait();
        _ = fs::remove_dir_all(&self.profile);
    }
}

/// Starts it with a profile of its own; its address comes with the first lines that it writes.
fn start(name: &str) -> (Browser, String) {
    let profile = std::env::temp_dir().join(format!("sluicegate-{name}-{}", std::process::id()));
    let mut process = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--hide-scrollbars", "--remote-debugging-port=0", "--disable-background-networking"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("about:blank")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("chromium is installed: ./tests/run operate does that");
    let said = BufReader::new(process.stderr.take().expect("it is piped"));
    let mut lines = said.lines().map(|line| line.expect("it writes text"));
    let address = lines.find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
    // It goes on writing, and must not stop because nobody reads.
    std::thread::spawn(move || lines.for_each(drop));
    (Browser { process, profile }, address.expect("it says where it listens"))
}

impl Page {
    pub(crate) async fn new(name: &str) -> Self {
        let (browser, url) = start(name);
        let authority = url.strip_prefix("ws://").and_then(|rest| rest.split('/').next()).expect("a ws URL");
        let stream = TcpStream::connect(authority).await.expect("it listens");
        let (socket, _) = client_async(&url, stream).await.expect("it speaks WebSocket");
        let mut page = Self { socket, session: Value::Null, calls: 0, events: Vec::new(), _browser: browser };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        page.session = page.call("Target.attachToTarget", attach).await["sessionId"].clone();
        page.call("Page.enable", json!({})).await;
        page.call("Network.enable", json!({})).await;
        page
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.socket.send(Message::text(message.to_string())).await.expect("the browser runs");
        loop {
            let answer = self.next().await;
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    async fn next(&mut self) -> Value {
        loop {
            let message = self.socket.next().await.expect("the browser runs").expect("it speaks WebSocket");
            if let Ok(text) = message.to_text()
                && let Ok(value) = serde_json::from_str(text)
            {
                return value;
            }
        }
    }

    /// Waits for an event of this name, which may have come already.
    async fn wait_for(&mut self, event: &str) -> Value {
        if let Some(at) = self.events.iter().position(|known| known["method"] == event) {
            return self.events.remove(at);
        }
        loop {
            let next = self.next().await;
            if next["method"] == event {
                return next;
            }
            self.events.push(next);
        }
    }

    /// Every request has this header field, as if it were the visitor's cookie.
    pub(crate) async fn always_send(&mut self, name: &str, value: &str) {
        self.call("Network.setExtraHTTPHeaders", json!({"headers": {name: value}})).await;
    }

    pub(crate) async fn without_scripts(&mut self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    }

    pub(crate) async fn looks(&mut self, width: u32, colours: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    /// Opens an address, and returns the status of the response.
    pub(crate) async fn open(&mut self, url: &str) -> u64 {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url})).await;
        self.loaded().await
    }

    /// Waits until the page that is on its way is there, and returns the status of its response.
    pub(crate) async fn loaded(&mut self) -> u64 {
        self.wait_for("Page.loadEventFired").await;
        let documents = |event: &&Value| {
            event["method"] == "Network.responseReceived" && event["params"]["type"] == "Document"
        };
        let status =
            self.events.iter().rev().find(documents).map(|event| &event["params"]["response"]["status"]);
        let status = status.and_then(Value::as_u64).unwrap_or_default();
        self.events.clear();
        status
    }

    /// What an expression is on the page.
    pub(crate) async fn value_of(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", asked).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The addresses of the frames in the page, as they are: an error page where one was not let in.
    pub(crate) async fn frames(&mut self) -> Vec<String> {
        let tree = self.call("Page.getFrameTree", json!({})).await;
        let frames = tree["frameTree"]["childFrames"].as_array().cloned().unwrap_or_default();
        frames.iter().map(|frame| frame["frame"]["url"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The text that a visitor reads.
    pub(crate) async fn text(&mut self) -> String {
        self.value_of("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key: `Tab`, `Enter`, or one with a letter.
    pub(crate) async fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            key => (0, key),
        };
        let down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", down).await;
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}),
        )
        .await;
    }

    /// Clicks on an element as a mouse does, in its middle.
    pub(crate) async fn click(&mut self, element: &str) {
        let middle = format!(
            "(element => {{ element.scrollIntoView({{block: 'center'}}); const box = element.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})({element})"
        );
        let middle = self.value_of(&middle).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": middle[0], "y": middle[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    pub(crate) async fn write(&mut self, text: &str) {
        for letter in text.chars() {
            self.press(&letter.to_string()).await;
        }
    }

    /// A picture of the whole page, below `target/operate`.
    pub(crate) async fn picture(&mut self, name: &str) {
        let asked = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.call("Page.captureScreenshot", asked).await;
        let picture = STANDARD.decode(answer["data"].as_str().expect("a picture")).expect("base64");
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/operate"));
        fs::create_dir_all(&folder).expect("target can be written to");
        fs::write(folder.join(format!("{name}.png")), picture).expect("target can be written to");
    }
}
