//! The ordering authority: the one place that knows about concurrency and time.
//!
//! ```text
//!  Engine (handle) ──Request──▶ shard tasks ────Append──▶ writer thread ──▶ store   one transaction, one fsync
//!        ▲                        │   ▲    │                   │
//!        └───── Answer ───────────┘   │    └─Load─▶ loaders    │ Appended
//!                                     └────────────────────────┘
//!               sweeper thread ──Due──▶ shards
//! ```
//!
//! A request that is alone in the engine is not handed to the writer: its shard commits it (`commit.rs`).
//!
//! A session belongs to exactly one shard, and a shard is a synchronous state machine ([`Shard`]): events in, effects
//! out. Tasks drive it in production, a seeded scheduler drives it in the simulator. Every answer carries the entry
//! it was decided on and leaves only when that entry is durable.

mod commit;
mod driver;
mod engine;
mod error;
mod feed;
mod gate;
mod live;
mod live_memory;
mod loader;
mod observer;
mod options;
mod panic;
mod registry;
mod shard;
mod submission;
mod subscription;
mod sweeper;
mod watchers;
mod writer;

pub use engine::Engine;
pub use error::{Error, Lagged};
pub use feed::{Delivery, Lifecycle, LifecycleEvent, Signal};
pub use loader::{Load, LoadResult, Loaded, load};
pub use observer::{Observer, Silent};
pub use options::Options;
pub use registry::{Registry, RegistryError};
pub use shard::{Answer, Effect, Event, Keep, Outgoing, Reply, Request, RequestKind, Shard, Snapshot};
pub use submission::Submission;
pub use subscription::{PageMemory, Subscription, SubscriptionError};
pub use watchers::{Watch, WatchError};
