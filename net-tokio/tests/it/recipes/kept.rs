//! Recipes that keep a node or a copy of it, also beyond a lost connection.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, join, select};
use serde_json::json;
use zabkeeper::testing::Ensemble;
use zabkeeper_client::recipes::{
    Configuration, DelayQueue, Discovery, PersistentNode, ServiceInstance, UriPart, Versioned,
};
use zabkeeper_client::{Client, CreateMode, Error, ErrorCode, Failure};

use super::{a_while, check};
use crate::harness::block_on;
use crate::testing::connect;

type Limits = BTreeMap<String, u32>;

fn limits(requests: u32) -> Limits {
    Limits::from([("requests".to_owned(), requests)])
}

/// Is this the value, with this version?
fn is(found: &Option<Versioned<Limits>>, requests: u32, version: i32) -> bool {
    found.as_ref().is_some_and(|found| *found.value == limits(requests) && found.version == version)
}

/// Deletes a node that a program keeps, and waits until it is there again.
async fn delete_and_await_return(client: &Client, path: &str) -> Result<(), Error> {
    client.delete(path, None).await?;
    while let (None, changed) = client.exists_and_watch(path).await? {
        changed.await?;
    }
    Ok(())
}

/// RECIPE-01.
#[test]
fn configuration_is_typed_cached_and_changed_by_version() {
    check(async |[a, b]| {
        let ours: Configuration<Limits> = Configuration::load(&a, "/app/limits").await.unwrap();
        let theirs: Configuration<Limits> = Configuration::load(&b, "/app/limits").await.unwrap();
        assert_eq!((ours.get(), theirs.get()), (None, None));
        let absent = ours.set(&limits(1), 0).await.unwrap_err();
        assert!(absent.is(ErrorCode::NoNode), "{absent}");
        let mut changes = theirs.changes();
        ours.set(&limits(1), None).await.unwrap();
        assert!(is(&changes.next().await.unwrap().unwrap(), 1, 0));
        assert!(is(&theirs.get(), 1, 0));
        assert_eq!(a.get("/app/limits").await.unwrap().0, r#"{"requests":1}"#);
        ours.set(&limits(2), 0).await.unwrap();
        let late = theirs.set(&limits(7), 0).await.unwrap_err();
        assert!(late.is(ErrorCode::BadVersion), "{late}");
        let add = |found: Option<&Limits>| limits(found.map_or(0, |found| found["requests"]) + 1);
        let adds = async |configuration: &Configuration<Limits>| {
            for _ in 0..20 {
                configuration.update(add).await.unwrap();
            }
        };
        join(adds(&ours), adds(&theirs)).await;
        let last = ours.update(add).await.unwrap();
        assert!(is(&Some(last), 43, 42));
        while !is(&theirs.get(), 43, 42) {
            changes.next().await.unwrap().unwrap();
        }
        a.delete("/app/limits", None).await.unwrap();
        while changes.next().await.unwrap().unwrap().is_some() {}
        assert_eq!(theirs.get(), None);
        assert!(is(&Some(theirs.update(add).await.unwrap()), 1, 0), "created anew");
    });
}

#[test]
fn configuration_keeps_its_value_when_the_data_do_not_parse() {
    check(async |[a, b]| {
        let ours: Configuration<Limits> = Configuration::load(&a, "/limits").await.unwrap();
        let mut changes = ours.changes();
        ours.set(&limits(1), None).await.unwrap();
        assert!(is(&changes.next().await.unwrap().unwrap(), 1, 0));
        b.set("/limits", r#"{"requests":"many"}"#, None).await.unwrap();
        let fault = changes.next().await.unwrap().unwrap_err();
        let text = fault.to_string();
        assert!(text.contains("get /limits: ") && text.contains("invalid type: string"), "{text}");
        assert_eq!((fault.failure(), ours.fault()), (Failure::UnexpectedData, Some(fault)));
        assert!(is(&ours.get(), 1, 0));
        let refused = ours.update(|_| limits(2)).await.unwrap_err();
        assert_eq!(refused.failure(), Failure::UnexpectedData);
        let unread = Configuration::<Limits>::load(&b, "/limits").await.unwrap_err();
        assert_eq!(unread.failure(), Failure::UnexpectedData);
        ours.set(&limits(3), 1).await.unwrap();
        assert!(is(&changes.next().await.unwrap().unwrap(), 3, 2));
        assert_eq!(ours.fault(), None);
        a.close().await;
        assert!(changes.next().await.is_none() && ours.changes().next().await.is_none());
        assert!(ours.fault().unwrap().is_fatal() && is(&ours.get(), 3, 2));
        assert!(ours.set(&limits(4), None).await.unwrap_err().is_fatal());
    });
}

#[test]
fn recipes_go_on_after_a_lost_connection() {
    let mut ensemble = Ensemble::single().unwrap();
    block_on(async {
        let client = connect(&ensemble).await;
        let configuration = Configuration::<Limits>::load(&client, "/c").await.unwrap();
        let mut changes = configuration.changes();
        let mut queue = DelayQueue::new(&client, "/delayed");
        queue.put("early", Duration::ZERO).await.unwrap();
        configuration.set(&limits(1), None).await.unwrap();
        assert!(is(&changes.next().await.unwrap().unwrap(), 1, 0));
        let node = PersistentNode::keep(&client, "/kept", "1", CreateMode::Ephemeral).await;
        let node = node.unwrap();
        let discovery = Discovery::new(&client, "/services");
        let registered = discovery.register(&ServiceInstance::new("s", "i")).await.unwrap();
        let provider = discovery.provider("s").await.unwrap();
        ensemble.stop_server(1).unwrap();
        assert!(is(&configuration.get(), 1, 0) && provider.next().is_some(), "copies stay");
        let changed = async {
            configuration.update(|_| limits(2)).await.unwrap();
            node.set_data("2").await.unwrap();
            queue.put("late", Duration::from_millis(1)).await.unwrap();
            assert_eq!(queue.take().await.unwrap(), "early");
            assert_eq!(queue.take().await.unwrap(), "late");
        };
        let restart = async { ensemble.start_server(1).unwrap() };
        join(changed, restart).await;
        while !is(&configuration.get(), 2, 1) {
            changes.next().await.unwrap().unwrap();
        }
        delete_and_await_return(&client, "/kept").await.unwrap();
        assert_eq!(client.get("/kept").await.unwrap().0, "2");
        delete_and_await_return(&client, "/services/s/i").await.unwrap();
        let mut changes = provider.changes();
        registered.unregister().await.unwrap();
        while provider.next().is_some() {
            changes.next().await.unwrap();
        }
    });
}

#[test]
fn node_is_created_again_when_others_have_deleted_it() {
    check(async |[a, b]| {
        let node = PersistentNode::keep(&a, "/hosts/a", "1", CreateMode::Ephemeral).await.unwrap();
        node.set_data("2").await.unwrap();
        for _ in 0..5 {
            delete_and_await_return(&b, node.path()).await.unwrap();
        }
        let (data, stat) = b.get("/hosts/a").await.unwrap();
        assert_eq!((&data[..], stat.ephemeral_owner), (&b"2"[..], a.session_id()));
        node.delete().await.unwrap();
        assert!(a.exists("/hosts/a").await.unwrap().is_none());
        let modes = [CreateMode::Persistent, CreateMode::EphemeralSequential];
        let [first, again] = ["3", "4"].map(|data| PersistentNode::keep(&a, "/p", data, modes[0]));
        let nodes = [first.await.unwrap(), again.await.unwrap()];
        assert_eq!(a.get("/p").await.unwrap().0, "4");
        drop(nodes);
        while let (Some(_), gone) = b.exists_and_watch("/p").await.unwrap() {
            gone.await.unwrap();
        }
        let refused = PersistentNode::keep(&a, "/p", "", modes[1]).await.unwrap_err();
        assert!(refused.is(ErrorCode::BadArguments), "{refused}");
    });
}

#[test]
fn node_of_an_earlier_session_is_waited_for() {
    check(async |[a, b]| {
        let keep = async |client: &Client, data: &'static str| {
            PersistentNode::keep(client, "/hosts/a", data, CreateMode::Ephemeral).await.unwrap()
        };
        let first = keep(&a, "1").await;
        let mut next = Box::pin(keep(&b, "2"));
        let early = select(&mut next, Box::pin(a_while(&b))).await;
        assert!(matches!(early, Either::Right(_)), "the earlier session lives");
        drop(early);
        assert_eq!(b.get("/hosts/a").await.unwrap().0, "1");
        let (next, ()) = join(next, a.close()).await;
        assert!(first.ended().await.is_fatal());
        assert!(first.set_data("3").await.unwrap_err().is_fatal());
        let (data, stat) = b.get(next.path()).await.unwrap();
        assert_eq!((&data[..], stat.ephemeral_owner), (&b"2"[..], b.session_id()));
    });
}

/// An instance as Curator's `JsonInstanceSerializer` writes it.
const CURATOR: &str = concat!(
    r#"{"name":"billing","id":"6d4e5121","address":"10.0.0.7","port":8005,"sslPort":null,"#,
    r#""payload":{"@class":"com.example.Zone","zone":"a"},"registrationTimeUTC":1610116500446,"#,
    r#""serviceType":"DYNAMIC","uriSpec":{"parts":[{"value":"address","variable":true},"#,
    r#"{"value":":80","variable":false}]},"enabled":true}"#,
);

#[test]
fn instance_has_the_format_of_curator() {
    let instance: ServiceInstance = serde_json::from_str(CURATOR).unwrap();
    assert_eq!((instance.port, instance.ssl_port), (Some(8005), None));
    assert_eq!(instance.payload, json!({"@class": "com.example.Zone", "zone": "a"}));
    let variable = UriPart { value: "address".to_owned(), variable: true };
    assert_eq!(instance.uri_spec.as_ref().unwrap().parts[0], variable);
    assert_eq!(serde_json::to_string(&instance).unwrap(), CURATOR);
    // Versions of Curator before the property `enabled`, and after it.
    let old = CURATOR.replace(r#","enabled":true"#, "");
    let new = CURATOR.replace(r#""enabled""#, r#""more":[1],"enabled""#);
    for other in [old, new] {
        assert_eq!(serde_json::from_str::<ServiceInstance>(&other).unwrap(), instance);
    }
}

/// RECIPE-01.
#[test]
fn instances_of_a_service_are_discovered_while_their_sessions_live() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| Discovery::new(client, "/services"));
        assert!(ours.services().await.unwrap().is_empty());
        let provider = theirs.provider("billing").await.unwrap();
        assert_eq!(provider.next(), None);
        let mut changes = provider.changes();
        let mut instance = ServiceInstance::new("billing", "a");
        instance.address = Some("host".to_owned());
        let registered = ours.register(&instance).await.unwrap();
        b.create("/services/billing/6d4e5121", CURATOR, CreateMode::Ephemeral).await.unwrap();
        b.create("/services/billing/bad", "no JSON", CreateMode::Ephemeral).await.unwrap();
        a_while(&a).await;
        assert_eq!(ours.services().await.unwrap(), ["billing"]);
        let listed = ours.instances("billing").await.unwrap();
        assert_eq!(listed, [serde_json::from_str(CURATOR).unwrap(), instance.clone()]);
        let bad = theirs.instance("billing", "bad").await.unwrap_err();
        assert_eq!(bad.failure(), Failure::UnexpectedData);
        assert!(bad.to_string().starts_with("get /services/billing/bad: "), "{bad}");
        assert_eq!(theirs.instance("billing", "none").await.unwrap(), None);
        while provider.instances() != listed {
            changes.next().await.unwrap();
        }
        let turns = [(); 4].map(|()| provider.next().unwrap());
        assert!(turns[0] == turns[2] && turns[1] == turns[3] && turns[0] != turns[1]);
        instance.enabled = false;
        registered.update(&instance).await.unwrap();
        while provider.instances() != listed[..1] {
            changes.next().await.unwrap();
        }
        registered.unregister().await.unwrap();
        assert_eq!(ours.instance("billing", "a").await.unwrap(), None);
        let registered = ours.register(&instance).await.unwrap();
        a.close().await;
        assert!(registered.ended().await.is_fatal());
        b.sync("/").await.unwrap();
        assert_eq!(theirs.instance("billing", "a").await.unwrap(), None);
        b.close().await;
        assert!(provider.ended().unwrap().is_fatal());
        assert_eq!(provider.instances(), listed[..1], "the copy stays");
    });
}
