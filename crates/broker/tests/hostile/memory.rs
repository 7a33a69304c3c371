//! How much memory this process has taken at most, as Linux counts it.

/// Resident memory may grow by this much in a test: brokers of tests that run beside it, their disks
/// in memory, and the largest honest request (10 MiB).
const RESIDENT_GROWTH_MAX: u64 = 64 << 20;
/// Address space may grow by this much. Memory that is reserved and never touched is not resident,
/// but it is counted here: one array of 2^31 claimed elements would take 2 GiB at least. What threads
/// take (a stack and a heap arena of 64 MiB each) has to fit.
const VIRTUAL_GROWTH_MAX: u64 = 1 << 30;

/// The high-water marks at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    resident: u64,
    address_space: u64,
}

impl Memory {
    pub fn now() -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of itself");
        let bytes = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            kib.unwrap_or_else(|| panic!("no {name} in {status}")) << 10
        };
        Memory {
            resident: bytes("VmHWM:"),
            address_space: bytes("VmPeak:"),
        }
    }

    /// Since `self` memory has not grown beyond the bounds.
    pub fn assert_no_jump(self, what: &str) {
        let now = Memory::now();
        let resident = now.resident.saturating_sub(self.resident);
        let address_space = now.address_space.saturating_sub(self.address_space);
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
