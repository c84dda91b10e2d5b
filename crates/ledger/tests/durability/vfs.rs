//! A SQLite file layer that passes everything on to the operating system's and writes down what reaches the files.
//!
//! This is the one file of the project with unsafe code. The file layer is a C interface, and only from inside it can
//! a test see which writes a sync has covered: killing a process loses nothing the kernel has already taken.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

/// The files whose content a crash may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum File {
    Database,
    Log,
}

/// What happened, in order.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write {
        file: File,
        offset: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        file: File,
        size: u64,
    },
    /// Covers the events of the file before position `covers`: those that came before the sync began.
    Sync {
        file: File,
        covers: usize,
    },
    /// Written down by the test: this many batches have been acknowledged.
    Acknowledged(usize),
}

/// An operation made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    LogWrite,
    LogSync,
    DatabaseWrite,
}

/// One registered file layer and its record. Lives until the process ends, as SQLite wants of a file layer.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) name: String,
    events: Mutex<Vec<Event>>,
    /// What fails, and how many more times.
    fault: Mutex<Option<(Fault, usize)>>,
    real: *mut sqlite3_vfs,
}

// SAFETY: `real` points to SQLite's default file layer, which is static and made for use by many threads; the rest is
// behind locks.
unsafe impl Sync for Recorder {}

impl Recorder {
    pub(crate) fn register() -> &'static Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: a null name asks for the default file layer, which exists once SQLite is initialised.
        let real = unsafe {
            assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
            ffi::sqlite3_vfs_find(std::ptr::null())
        };
        assert!(!real.is_null());
        let name = format!("recorder-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let c_name = CString::new(name.clone()).expect("no zero byte in the name").into_raw();
        let recorder: &'static Self =
            Box::leak(Box::new(Self { name, events: Mutex::default(), fault: Mutex::default(), real }));
        // SAFETY: `real` is a valid file layer. The copy keeps its functions; of those only the one that opens files
        // looks at the application data, and that one is replaced. The copy lives for ever.
        unsafe {
            let mut layer = *real;
            layer.pNext = std::ptr::null_mut();
            layer.zName = c_name;
            layer.szOsFile += size_of::<Shim>() as c_int;
            layer.pAppData = std::ptr::from_ref(recorder).cast_mut().cast();
            layer.xOpen = Some(open);
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(layer)), 0), ffi::SQLITE_OK);
        }
        recorder
    }

    pub(crate) fn record(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }

    /// The next `times` such operations fail: writes as on a full disk, syncs as on a broken one.
    pub(crate) fn fail(&self, fault: Fault, times: usize) {
        *self.fault.lock().unwrap() = (times > 0).then_some((fault, times));
    }

    fn fails(&self, operation: Fault) -> bool {
        let mut fault = self.fault.lock().unwrap();
        match &mut *fault {
            Some((kind, times)) if *kind == operation => {
                *times -= 1;
                if *times == 0 {
                    *fault = None;
                }
                true
            }
            _ => false,
        }
    }
}

/// An open file: what SQLite needs to find first, then ours; the real file follows in the same allocation.
#[repr(C)]
struct Shim {
    base: sqlite3_file,
    /// `None` for files a crash does not matter to, such as shared memory.
    recorded: Option<(&'static Recorder, File)>,
}

/// SAFETY: for the callers below, `file` is always one that [`open`] has set up.
unsafe fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    unsafe { file.cast::<u8>().add(size_of::<Shim>()).cast() }
}

unsafe fn recorded(file: *mut sqlite3_file) -> Option<(&'static Recorder, File)> {
    unsafe { (*file.cast::<Shim>()).recorded }
}

unsafe extern "C" fn open(
    layer: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands us the layer we registered and room for `szOsFile` bytes at `file`.
    unsafe {
        let recorder: &'static Recorder = &*(*layer).pAppData.cast::<Recorder>();
        let shim = file.cast::<Shim>();
        let kind = if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            Some(File::Database)
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            Some(File::Log)
        } else {
            None
        };
        (*shim).recorded = kind.map(|kind| (recorder, kind));
        (*shim).base.pMethods = std::ptr::null();
        let real = inner(file);
        (*real).pMethods = std::ptr::null();
        let open = (*recorder.real).xOpen.expect("a file layer opens files");
        let code = open(recorder.real, name, real, flags, out_flags);
        if !(*real).pMethods.is_null() {
            (*shim).base.pMethods = &METHODS;
        }
        code
    }
}

/// Calls the same method of the real file.
macro_rules! forward {
    ($file:ident, $method:ident $(, $argument:expr)*) => {
        // SAFETY: the real file was opened by `open` and is of a version that has this method.
        unsafe {
            let real = inner($file);
            ((*(*real).pMethods).$method.expect("the real file has this method"))(real $(, $argument)*)
        }
    };
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    length: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite promises `length` readable bytes at `data`.
    if let Some((recorder, kind)) = unsafe { recorded(file) } {
        let operation = match kind {
            File::Database => Fault::DatabaseWrite,
            File::Log => Fault::LogWrite,
        };
        if recorder.fails(operation) {
            return ffi::SQLITE_FULL;
        }
        let length = usize::try_from(length).expect("a length");
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec();
        recorder.record(Event::Write { file: kind, offset: offset.try_into().expect("an offset"), bytes });
    }
    forward!(file, xWrite, data, length, offset)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    if let Some((recorder, kind)) = unsafe { recorded(file) } {
        recorder.record(Event::Truncate { file: kind, size: size.try_into().expect("a size") });
    }
    forward!(file, xTruncate, size)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    let Some((recorder, kind)) = (unsafe { recorded(file) }) else { return forward!(file, xSync, flags) };
    if kind == File::Log && recorder.fails(Fault::LogSync) {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    let covers = recorder.events.lock().unwrap().len();
    let code = forward!(file, xSync, flags);
    if code == ffi::SQLITE_OK {
        recorder.record(Event::Sync { file: kind, covers });
    }
    code
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    forward!(file, xClose)
}

unsafe extern "C" fn read(file: *mut sqlite3_file, data: *mut c_void, length: c_int, offset: sqlite3_int64) -> c_int {
    forward!(file, xRead, data, length, offset)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    forward!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    forward!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    forward!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    forward!(file, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    forward!(file, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    forward!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    forward!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    forward!(file, xShmMap, page, size, extend, out)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    forward!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    forward!(file, xShmBarrier);
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    forward!(file, xShmUnmap, delete)
}

/// Version 2: with shared memory, which the log needs, and without memory-mapped reads.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
