//! How much memory this process has taken at most, as Linux counts it.

use parking_lot::{Mutex, MutexGuard};

/// Resident memory may grow by this much in a test: brokers of tests that run beside it, their disks
/// in memory, and the largest honest request (10 MiB).
const RESIDENT_GROWTH_MAX: u64 = 64 << 20;
/// Address space may grow by this much. Memory that is reserved and never touched is not resident,
/// but it is counted here: one array of 2^31 claimed elements would take 2 GiB at least. What threads
/// take (a stack and a heap arena of 64 MiB each) has to fit.
const VIRTUAL_GROWTH_MAX: u64 = 1 << 30;

/// The marks are those of the whole process, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The high-water marks at some moment.
pub struct Memory {
    marks: Marks,
    _turn: MutexGuard<'static, ()>,
}

struct Marks {
    resident: u64,
    address_space: u64,
}

impl Marks {
    fn now() -> Marks {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of itself");
        let bytes = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            kib.unwrap_or_else(|| panic!("no {name} in {status}")) << 10
        };
        Marks {
            resident: bytes("VmHWM:"),
            address_space: bytes("VmPeak:"),
        }
    }
}

impl Memory {
    /// Waits until no other test looks at memory. Blocks.
    pub fn now() -> Memory {
        let turn = TURN.lock();
        Memory {
            marks: Marks::now(),
            _turn: turn,
        }
    }

    /// Since `self` memory has not grown beyond the bounds.
    pub fn assert_no_jump(self, what: &str) {
        let now = Marks::now();
        let resident = now.resident.saturating_sub(self.marks.resident);
        let address_space = now.address_space.saturating_sub(self.marks.address_space);
        println!(
            "{what}: {} MiB more resident ({} in all), {} MiB more address space",
            resident >> 20,
            now.resident >> 20,
            address_space >> 20
        );
        assert!(
            resident <= RESIDENT_GROWTH_MAX,
            "{what}: {resident} bytes more resident"
        );
        assert!(
            address_space <= VIRTUAL_GROWTH_MAX,
            "{what}: {address_space} bytes more address space"
        );
    }
}
