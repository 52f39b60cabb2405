//! Until when a response is under way: as long as the server has any of its data.

use std::convert::Infallible;
use std::future::ready;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use sluicegate_core::Key;
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::respond::Refusal;
use tower::{Layer, ServiceExt, service_fn};

use crate::guard::connections::Client;
use crate::support::{Protocol, serve};

/// Larger than what the sockets of a machine take by themselves.
const FILE: usize = 32 * 1024 * 1024;

/// Bodies that were handed over whole once counted as gone, though their clients had read nothing: twelve downloads of
/// 50 MB were under way at a limit of two.
#[tokio::test]
async fn a_stalled_download_of_a_body_in_memory_is_under_way_until_its_bytes_have_gone() {
    for protocol in [Protocol::Http1, Protocol::Http1Copying, Protocol::Http2] {
        let in_flight = InFlight::new("downloads", 2).unwrap();
        let file = Bytes::from(vec![7; FILE]);
        let service = service_fn(move |_: Request<Incoming>| {
            ready(Ok::<_, Infallible>(Response::new(Full::new(file.clone()))))
        });
        let layer = InFlightLayer::new(in_flight.clone()).key(Key::from("all"));
        let address = serve(protocol, layer.layer(service)).await;
        let mut stalled = Vec::new();
        for _ in 0..12 {
            let mut client = Client::connect(address, protocol).await;
            let response = client.send(Bytes::new()).await;
            stalled.push((client, response));
        }
        let passed = stalled.iter().filter(|(_, response)| response.status() == StatusCode::OK).count();
        assert_eq!((passed, in_flight.in_use("all")), (2, 2), "{protocol:?}");

        let (_client, first) = stalled.remove(0);
        assert_eq!(first.into_body().collect().await.unwrap().to_bytes().len(), FILE);
        let first = in_flight.acquire("all").await.unwrap();
        // The other one hangs up.
        drop(stalled);
        let second = in_flight.acquire("all").await.unwrap();
        drop((first, second));
        assert_eq!(in_flight.keys(), 0, "{protocol:?}");
    }
}

/// Frames of some kind of data.
type Frames<D> = Vec<Result<Frame<D>, Infallible>>;

/// A response with these frames from behind the layer.
async fn held<D>(
    in_flight: &InFlight,
    frames: Frames<D>,
) -> impl http_body::Body<Data = Bytes, Error = Infallible>
where
    D: bytes::Buf + Clone + Send + Sync + 'static,
{
    let body = Arc::new(Mutex::new(Some(StreamBody::new(futures_util::stream::iter(frames)))));
    let nobody = |_: &Refusal<'_>| -> Response<_> { unreachable!("nothing is refused") };
    let layer = InFlightLayer::new(in_flight.clone()).key(Key::from("all")).respond(nobody);
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let body = body.lock().unwrap().take().expect("one request is made");
        ready(Ok::<_, Infallible>(Response::new(body)))
    }));
    service.oneshot(Request::new(())).await.unwrap().into_body()
}

#[tokio::test]
async fn data_holds_the_permit_when_its_body_is_gone() {
    let in_flight = InFlight::new("downloads", 1).unwrap();
    let mut body = Box::pin(held(&in_flight, vec![Ok(Frame::data(Bytes::from_static(b"hello")))]).await);
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(body.frame().await.is_none());
    drop(body);
    let part = data.slice(1..2);
    drop(data);
    assert_eq!((&*part, in_flight.in_use("all")), (&b"e"[..], 1));
    drop(part);
    assert_eq!(in_flight.in_use("all"), 0);
}

#[tokio::test]
async fn a_large_piece_of_data_goes_out_in_small_ones_and_none_is_lost() {
    let in_flight = InFlight::new("downloads", 1).unwrap();
    let text: Vec<u8> = (0..=u8::MAX).cycle().take(200_000).collect();
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    // Data that is not `Bytes`.
    let (large, last) = (Cursor::new(text.clone()), Cursor::new(b"last".to_vec()));
    let frames = vec![
        Ok(Frame::data(large)),
        Ok(Frame::data(Cursor::new(Vec::new()))),
        Ok(Frame::data(last)),
        Ok(Frame::trailers(trailers.clone())),
    ];
    let mut body = Box::pin(held(&in_flight, frames).await);
    let (mut sizes, mut read) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        match frame.unwrap().into_data() {
            Ok(data) => {
                sizes.push(data.len());
                read.extend_from_slice(&data);
            }
            Err(frame) => assert_eq!(frame.into_trailers().unwrap(), trailers),
        }
        assert_eq!((in_flight.in_use("all"), body.is_end_stream()), (1, false));
    }
    assert_eq!(sizes, [65_536, 65_536, 65_536, 3_392, 0, 4]);
    assert_eq!(read, [&text[..], b"last"].concat());
    assert_eq!(in_flight.in_use("all"), 0);
}

#[tokio::test]
async fn the_size_of_a_body_counts_what_it_has_not_handed_out() {
    let in_flight = InFlight::new("downloads", 1).unwrap();
    let layer = InFlightLayer::new(in_flight.clone()).key(Key::from("all"));
    let service = layer.layer(service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![7; 100_000])))))
    }));
    let mut body = service.oneshot(Request::new(())).await.unwrap().into_body();
    for (left, ended) in [(100_000, false), (34_464, false), (0, true)] {
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), ended));
        assert_eq!((body.is_holding(), in_flight.in_use("all")), (!ended, u64::from(!ended)));
        drop(body.frame().await);
    }
}
