//! The status page of a service whose rules are in a file.

use http::Request;
use serde_json::Value;
use sluicegate::observed::Observed;
use sluicegate::status::StatusPage;
use sluicegate_tests::memory;
use tower::ServiceExt;

use crate::rules::folder::Folder;

const TEXT: &str = "version: 1\npolicies:\n  login: { quota: 5/min }\nrules:\n  - { name: all, limit: login, key: client }\n";

/// What the page says of the application.
async fn notices(page: &StatusPage) -> Vec<String> {
    let request = Request::get("/status.json").header("host", "localhost").body(String::new()).unwrap();
    let json: Value = serde_json::from_str(page.clone().oneshot(request).await.unwrap().body()).unwrap();
    let all = json["notices"].as_array().unwrap().iter();
    all.map(|notice| format!("{}: {}", notice["about"].as_str().unwrap(), notice["text"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn what_is_wrong_with_the_file_stands_on_the_status_page_until_it_is_right() {
    let (store, _) = memory::store();
    let store = Observed::named("rules", store).unwrap();
    let folder = Folder::with(TEXT);
    let rules = folder.open(&store);
    let page =
        StatusPage::new(&store).guard(|_| Some("ada")).secret([7; 32]).host("localhost").build().unwrap();
    let shown = page.clone();
    rules.listen(move |news| match news {
        Ok(_) => shown.take_back_notice("rules"),
        Err(error) => shown.notice("rules", error.to_string()),
    });
    for good in [TEXT.to_owned(), TEXT.replace("5/min", "9/min")] {
        folder.swap(&TEXT.replace("5/min", "5/fortnight"));
        for _ in 0..2 {
            assert!(rules.reload().is_err());
            let notices = notices(&page).await;
            assert!(
                notices.len() == 1 && notices[0].starts_with("rules: ") && notices[0].contains("^^^^"),
                "{notices:?}"
            );
        }
        folder.swap(&good);
        assert!(rules.reload().is_ok());
        assert_eq!(notices(&page).await, [""; 0]);
    }
}
