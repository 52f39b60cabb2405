//! The aims of the default among the algorithms, and what the others miss of them.

use sluicegate_in_flight::adaptive::LimitAlgorithm;
use sluicegate_simulator::adaptive::{Compared, Row, Scene, Server, Times};

fn compared(scene: &str, algorithms: &[LimitAlgorithm]) -> Vec<Row> {
    let scene = Scene::named(scene, 20).expect("it is one of them");
    Compared::of(&scene, Server::default(), Times::Exponential, 1, algorithms).rows
}

/// Rows have each answer in them: too much to read.
fn assert_row(holds: impl Fn(&Row) -> bool, scene: &str, row: &Row) {
    let Row { algorithm, goodput, p99, recovered, swing, .. } = row;
    assert!(holds(row), "{scene} by {algorithm}: {goodput:.3}, {p99:.1}x, {recovered:?}, {swing:.2}");
}

#[test]
fn the_default_meets_its_aims_where_load_and_service_change() {
    for scene in ["load", "workers", "speed"] {
        let row = &compared(scene, &[LimitAlgorithm::default()])[0];
        let is_aim = |row: &Row| row.goodput >= 0.95 && row.recovered <= Some(5) && row.swing <= 0.1;
        assert_row(|row| is_aim(row) && row.p99 <= 2.0, scene, row);
    }
}

#[test]
fn each_of_the_others_misses_an_aim() {
    use LimitAlgorithm::{Aimd, Gradient2, Vegas};
    for row in &compared("load", &[Vegas, Aimd]) {
        assert_row(|row| row.goodput < 0.95 || row.recovered > Some(5), "load", row);
    }
    assert_row(|row| row.goodput < 0.95, "dependency", &compared("dependency", &[Gradient2])[0]);
}

#[test]
fn equal_arguments_give_equal_reports() {
    let [first, again] = [(), ()].map(|()| {
        let scene = Scene::named("pauses", 3).expect("it is one of them");
        let server = Server { workers: 8, ..Server::default() };
        Compared::of(&scene, server, Times::Heavy, 7, &LimitAlgorithm::ALL)
    });
    assert_eq!(first.to_string(), again.to_string());
    assert_eq!(first.picture(), again.picture());
}
