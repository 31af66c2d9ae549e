//! Routes of findings, and of who is told of them.

use super::Method::{Delete, Post, Put};
use super::Role::{Administrator, Operator, Viewer};
use super::{Body, Route, get, json, send, with_query};
use crate::*;

/// The routes.
pub(super) const FINDINGS: &[Route] = &[
    with_query(
        get(
            Viewer,
            "/findings",
            "finding_list",
            "What is not as it should be, or was not: since when, how often, who knows of it.",
            json::<List<OnNode<Finding>>>(),
        ),
        &["state", "severity", "code", "acknowledged", "limit"],
    ),
    send(
        Operator,
        Post,
        "/findings/{finding}/acknowledge",
        "finding_acknowledge",
        "Says that somebody knows of a finding, until it clears or gets worse.",
        json::<Acknowledge>(),
        json::<Finding>(),
    ),
    send(
        Operator,
        Post,
        "/findings/{finding}/unacknowledge",
        "finding_unacknowledge",
        "Takes that back.",
        Body::Empty,
        json::<Finding>(),
    ),
    get(
        Administrator,
        "/notifiers",
        "notifier_list",
        "Who is told of findings.",
        json::<List<NotifierStatus>>(),
    ),
    send(
        Administrator,
        Put,
        "/notifiers/{notifier}",
        "notifier_set",
        "Has somebody told of findings, or changes how.",
        json::<Notifier>(),
        json::<NotifierStatus>(),
    ),
    send(
        Administrator,
        Delete,
        "/notifiers/{notifier}",
        "notifier_remove",
        "Tells it no more.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
        Administrator,
        Post,
        "/notifiers/{notifier}/test",
        "notifier_test",
        "Sends a notification that says it is a test, and waits for what becomes of it.",
        Body::Empty,
        json::<Done>(),
    ),
];
