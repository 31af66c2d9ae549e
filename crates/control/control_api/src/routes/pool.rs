//! Routes of pools.

use super::Method::{Delete, Post};
use super::{Body, Route, get, json, send, with_query};
use crate::*;

/// The routes.
pub(super) const POOLS: &[Route] = &[
    get("/pools", "pool_list", "Pools.", json::<List<Pool>>()),
    send(Post, "/pools", "pool_create", "Makes a pool of disks.", json::<PoolCreate>(), json::<PoolDetail>()),
    send(
        Post,
        "/pools/import",
        "pool_import",
        "Takes over a pool that is on disks of this machine.",
        json::<PoolImport>(),
        json::<PoolDetail>(),
    ),
    get("/pools/{pool}", "pool_show", "A pool with its disks and spaces.", json::<PoolDetail>()),
    send(
        Delete,
        "/pools/{pool}",
        "pool_delete",
        "Destroys a pool and everything in it.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
        Post,
        "/pools/{pool}/disks",
        "pool_add_disk",
        "Adds disks.",
        json::<AddDisk>(),
        json::<PoolDetail>(),
    ),
    with_query(
        send(
            Post,
            "/pools/{pool}/remove",
            "pool_remove_disk",
            "Empties a disk and takes it out.",
            json::<RemoveDisk>(),
            json::<Done>(),
        ),
        &["disk"],
    ),
    with_query(
        send(
            Post,
            "/pools/{pool}/retire",
            "pool_retire_disk",
            "Puts nothing new on a disk, and moves away what is on it.",
            Body::Empty,
            json::<PoolDetail>(),
        ),
        &["disk"],
    ),
    with_query(
        send(
            Post,
            "/pools/{pool}/keep",
            "pool_keep_disk",
            "Takes back that a disk is to leave.",
            Body::Empty,
            json::<PoolDetail>(),
        ),
        &["disk"],
    ),
    with_query(
        send(
            Post,
            "/pools/{pool}/replace",
            "pool_replace_disk",
            "Gives what a lost disk held to another one.",
            json::<ReplaceDisk>(),
            json::<Done>(),
        ),
        &["disk"],
    ),
    send(
        Post,
        "/pools/{pool}/export",
        "pool_export",
        "Closes a pool and forgets it, so that another machine can import it.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
        Post,
        "/pools/{pool}/forget",
        "pool_forget",
        "Takes a pool that is not open out of the configuration, with what refers to its volumes.",
        json::<Confirm>(),
        json::<Done>(),
    ),
    send(
        Post,
        "/pools/{pool}/repair",
        "pool_repair",
        "Restores redundancy now.",
        Body::Empty,
        json::<Done>(),
    ),
    send(
        Post,
        "/pools/{pool}/scrub",
        "pool_scrub",
        "Begins to read everything and to heal what is damaged.",
        Body::Empty,
        json::<Done>(),
    ),
    send(
        Post,
        "/pools/{pool}/rebalance",
        "pool_rebalance",
        "Makes its disks equally full.",
        json::<Rebalance>(),
        json::<RebalanceReport>(),
    ),
    send(
        Post,
        "/pools/{pool}/check",
        "pool_check",
        "Verifies all structures.",
        json::<CheckRequest>(),
        json::<CheckReport>(),
    ),
];
