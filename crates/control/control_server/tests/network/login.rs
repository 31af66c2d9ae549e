//! Logging in, staying in, and being put out.

use serde_json::json;

use crate::world::{PASSWORD, World};

const CHANGE: (&str, &str) = ("x-holdfast-request", "1");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_a_cookie_that_pages_of_others_cannot_use() {
    let world = World::start().await;
    let answer = world.log_in("ADA", PASSWORD).await;
    assert_eq!(answer.json(), json!({ "user": "ada", "role": "administrator", "proof": "session" }));
    let set = &answer.headers["set-cookie"];
    assert!(set.starts_with("__Host-holdfast-session="), "{set}");
    for part in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(set.split("; ").any(|each| each == part), "{part}: {set}");
    }
    let cookie = world.session("ada").await;
    let me = world.client.send("GET", "/v1/me", &[("cookie", &cookie)], "").await;
    assert_eq!(me.json()["role"], "administrator");
    let own = format!("https://{}", world.client.address);
    let rescan = async |headers: &[(&str, &str)]| {
        let all = [&[("cookie", &*cookie)], headers].concat();
        world.client.send("POST", "/v1/disks/rescan", &all, "").await.status
    };
    assert_eq!(rescan(&[]).await, 403);
    assert_eq!(rescan(&[("origin", &own)]).await, 403);
    assert_eq!(rescan(&[CHANGE]).await, 200);
    assert_eq!(rescan(&[CHANGE, ("origin", &own)]).await, 200);
    for origin in ["https://evil.example", "null", "http://127.0.0.1", ""] {
        assert_eq!(rescan(&[CHANGE, ("origin", origin)]).await, 403, "{origin}");
    }
    // A token is sent by whoever has it, not by a browser by itself.
    let (token, _) = world.token("operator", None).await;
    let bearer = format!("Bearer {token}");
    let answer = world.client.send("POST", "/v1/disks/rescan", &[("authorization", &bearer)], "").await;
    assert_eq!(answer.status, 200);
    // Pages of others cannot log somebody in as somebody else either.
    let body = json!({ "user": "ada", "password": PASSWORD }).to_string();
    let without = world.client.send("POST", "/v1/login", &[], &body).await;
    let elsewhere = [CHANGE, ("origin", "https://evil.example")];
    let elsewhere = world.client.send("POST", "/v1/login", &elsewhere, &body).await;
    assert_eq!((without.status, elsewhere.status), (403, 403));
    let out = world.client.send("POST", "/v1/logout", &[("cookie", &cookie), CHANGE], "").await;
    assert!(out.headers["set-cookie"].contains("Max-Age=0"), "{out:?}");
    assert_eq!(world.client.send("GET", "/v1/me", &[("cookie", &cookie)], "").await.status, 401);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_tokens_go_with_their_user() {
    let world = World::start().await;
    let cookie = world.session("ada").await;
    let headers = [("cookie", cookie.as_str()), CHANGE];
    let made =
        world.client.send("POST", "/v1/tokens", &headers, "{\"role\":\"viewer\",\"name\":\"ci\"}").await;
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(made.json()["owner"], "ada");
    let bearer = format!("Bearer {}", made.json()["secret"].as_str().expect("shown"));
    let by_token =
        async || world.client.send("GET", "/v1/status", &[("authorization", &bearer)], "").await.status;
    let by_session = async || world.client.send("GET", "/v1/status", &[("cookie", &cookie)], "").await.status;
    assert_eq!((by_token().await, by_session().await), (200, 200));
    world.local("PATCH", "/v1/users/ada", &json!({ "disabled": true, "confirm": "ada" })).await;
    assert_eq!((by_token().await, by_session().await), (401, 401));
    world.local("PATCH", "/v1/users/ada", &json!({ "disabled": false })).await;
    // The token is durable, the session was ended.
    assert_eq!((by_token().await, by_session().await), (200, 401));
    world.local("DELETE", "/v1/users/ada", &json!({ "confirm": "ada" })).await;
    assert_eq!(by_token().await, 401);
    assert_eq!(world.log_in("nora", PASSWORD).await.status, 403);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_guesses_is_locked_out() {
    let world = World::start().await;
    let cookie = world.session("vera").await;
    for _ in 0..10 {
        assert_eq!(world.log_in("vera", "wrong").await.status, 401);
    }
    let locked = world.log_in("vera", PASSWORD).await;
    assert_eq!((locked.status, locked.code()), (401, "unauthenticated".into()));
    let me = world.client.send("GET", "/v1/me", &[("cookie", &cookie)], "").await;
    assert_eq!(me.status, 401, "who is locked out has no session any more");
    for _ in 0..10 {
        world.log_in("nobody at all", "wrong").await;
    }
    // From this address nobody is listened to, whoever it is.
    let many = world.log_in("ada", PASSWORD).await;
    assert_eq!((many.status, many.code()), (429, "too-many".into()));
    world.local("POST", "/v1/users/vera/unlock", &json!({})).await;
    world.pass(601);
    assert_eq!(world.log_in("vera", PASSWORD).await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sessions_end() {
    let world = World::start().await;
    let cookie = world.session("vera").await;
    let me = async || world.client.send("GET", "/v1/me", &[("cookie", &cookie)], "").await.status;
    world.pass(29 * 60);
    assert_eq!(me().await, 200);
    // What a page asks for by itself does not count.
    world.pass(20 * 60);
    let poll = [("cookie", cookie.as_str()), ("x-holdfast-poll", "1")];
    assert_eq!(world.client.send("GET", "/v1/status", &poll, "").await.status, 200);
    world.pass(10 * 60);
    assert_eq!(me().await, 401);
    world.stop().await;
}
