//! The device: registers, security processor, power management, and the mailbox in front of the firmware.
//!
//! Whatever the guest writes is handled at once, under one lock, for QEMU waits. What takes long is done by the array's thread without
//! the lock (`execution`).

use crate::address_space::AddressSpace;
use crate::bars::Bars;
use crate::config_space::{ConfigSpace, VECTORS};
use crate::execution::{self, Job, JobEnvironment, JobResult};
use crate::firmware::{Firmware, Reply};
use crate::journal::Journal;
use crate::mailbox::{MANAGEMENT, Mailbox, Message};
use crate::model::Register;
use crate::settings::Settings;
use aie_driver_mock::npu::array::Array;
use aie_hal::KernelExecutor;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{Error, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

/// Bit 31 of the security processor's status: it is ready for a command.
const PSP_READY: u32 = 1 << 31;
/// Commands of the security processor: check the firmware, start it, stop it, check another part of it (`aie_psp.c`).
const PSP_VALIDATE: u32 = 1;
const PSP_START: u32 = 2;
const PSP_RELEASE: u32 = 3;
const PSP_VALIDATE_CERT: u32 = 4;
const PSP_COMMAND_MASK: u32 = 0xff;
/// Answer of the security processor to anything else (`PSP_ERROR_BAD_STATE`).
const PSP_BAD_STATE: u32 = 0xffff_0007;
/// Commands of the power management: on, off, clocks of npu1, levels of the others (`aie_smu.c`).
const SMU_COMMANDS: std::ops::RangeInclusive<u32> = 3..=8;
const SMU_GOOD: u32 = 1;
const SMU_UNKNOWN: u32 = 0xfe;

#[derive(Debug)]
struct State {
    config: ConfigSpace,
    bars: Bars,
    mailbox: Mailbox,
    firmware: Firmware,
    /// Event descriptors by vector.
    interrupts: Vec<Option<File>>,
}

/// An NPU on a PCI bus. Thread-safe.
#[derive(Debug)]
pub struct Device {
    /// Its settings.
    pub settings: Settings,
    /// The guest's memory.
    pub space: AddressSpace,
    /// What happened.
    pub journal: Journal,
    state: Mutex<State>,
    jobs: Sender<Job>,
}

impl Device {
    /// A device at power-on, with a thread for its array, which ends with it.
    ///
    /// # Errors
    /// When there is no thread, or no room for the guest's addresses.
    pub fn new(settings: Settings, executor: Arc<dyn KernelExecutor>, journal: Journal) -> Result<Arc<Self>, Error> {
        let firmware = Firmware::new(settings.clone());
        let layout = settings.model.layout;
        let state = State {
            config: ConfigSpace::new(settings.model),
            bars: Bars::new(&layout.bars),
            mailbox: Mailbox::new(layout, firmware.channels()),
            firmware,
            interrupts: (0..VECTORS).map(|_| None).collect(),
        };
        let (sender, receiver) = channel();
        let array = Array::new(settings.arch.clone(), executor);
        let device =
            Arc::new(Self { settings, space: AddressSpace::new()?, journal, state: Mutex::new(state), jobs: sender });
        device.reset();
        let weak = Arc::downgrade(&device);
        std::thread::Builder::new().name("aie-npu-array".into()).spawn(move || work(array, &receiver, &weak))?;
        Ok(device)
    }

    /// Puts the device back into the state at power-on. What QEMU has set up stays.
    pub fn reset(&self) {
        let layout = self.settings.model.layout;
        let mut state = self.state.lock();
        state.firmware.stop();
        state.mailbox.close_all();
        state.config = ConfigSpace::new(self.settings.model);
        state.bars = Bars::new(&layout.bars);
        state.bars.set_word(layout.psp.command, PSP_READY);
    }

    /// The guest reads its configuration space.
    pub fn read_config(&self, offset: usize, target: &mut [u8]) {
        self.state.lock().config.read(offset, target);
    }

    /// The guest writes to its configuration space.
    pub fn write_config(&self, offset: usize, source: &[u8]) {
        self.state.lock().config.write(offset, source);
    }

    /// The guest reads from a BAR.
    pub fn read(&self, bar: u32, offset: u64, target: &mut [u8]) {
        self.state.lock().bars.read(bar as usize, usize::try_from(offset).unwrap_or(usize::MAX), target);
        self.journal.read(bar, offset, target);
    }

    /// The guest writes to a BAR.
    pub fn write(&self, bar: u32, offset: u64, source: &[u8]) {
        self.journal.write(bar, offset, source);
        let (bar, Ok(start)) = (bar as usize, usize::try_from(offset)) else { return };
        let mut state = self.state.lock();
        state.bars.write(bar, start, source);
        if let (Ok(offset), 4) = (u32::try_from(offset), source.len()) {
            self.written(&mut state, Register { bar, offset });
        }
    }

    /// Sets the event descriptors of interrupt vectors from `first` on.
    pub fn set_interrupts(&self, first: usize, files: Vec<File>) {
        let mut state = self.state.lock();
        for (slot, file) in state.interrupts.iter_mut().skip(first).zip(files) {
            *slot = Some(file);
        }
    }

    /// Takes all event descriptors away.
    pub fn clear_interrupts(&self) {
        self.state.lock().interrupts.iter_mut().for_each(|slot| *slot = None);
    }

    /// A report in JSON: counts of the silicon, of messages and accesses.
    pub fn report(&self) -> serde_json::Value {
        let mut report = serde_json::json!(self.state.lock().firmware.npu.counts());
        report["npu"] = self.settings.model.name.into();
        self.journal.report(&mut report);
        report
    }

    fn written(&self, state: &mut State, register: Register) {
        let layout = self.settings.model.layout;
        if register == layout.psp.doorbell && state.bars.word(register) != 0 {
            self.psp(state);
        } else if register == layout.smu.doorbell && state.bars.word(register) != 0 {
            self.smu(state);
        } else if let Some(channel) = state.mailbox.sent(register) {
            self.receive(state, channel);
        } else if let Some(channel) = state.mailbox.taken(register)
            && state.mailbox.flush(&mut state.bars, channel)
        {
            self.interrupt(state, channel);
        }
    }

    fn psp(&self, state: &mut State) {
        let psp = &self.settings.model.layout.psp;
        let command = state.bars.word(psp.command) & PSP_COMMAND_MASK;
        self.journal.detail(format_args!("psp    command {command}"));
        let answer = match command {
            PSP_VALIDATE | PSP_VALIDATE_CERT => 0,
            PSP_START => {
                state.firmware.start();
                state.mailbox.close_all();
                state.mailbox.announce(&mut state.bars, self.settings.protocol);
                0
            }
            PSP_RELEASE => {
                state.firmware.stop();
                state.mailbox.close_all();
                0
            }
            _ => {
                self.journal.note(format!("the security processor has no command {command}"));
                PSP_BAD_STATE
            }
        };
        state.bars.set_word(psp.argument_0, answer);
        state.bars.set_word(psp.command, PSP_READY);
    }

    fn smu(&self, state: &mut State) {
        let smu = &self.settings.model.layout.smu;
        let command = state.bars.word(smu.command);
        self.journal.detail(format_args!("smu    command {command} argument {}", state.bars.word(smu.argument)));
        let known = SMU_COMMANDS.contains(&command);
        if !known {
            self.journal.note(format!("the power management has no command {command}"));
        }
        // Clocks are set as asked, so the argument is the answer too.
        state.bars.set_word(smu.response, if known { SMU_GOOD } else { SMU_UNKNOWN });
    }

    fn receive(&self, state: &mut State, channel: usize) {
        loop {
            let message = match state.mailbox.receive(&mut state.bars, channel) {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(why) => {
                    self.journal.note(why.to_string());
                    return;
                }
            };
            let answer = match state.firmware.handle(channel, &message, &self.space, &self.journal) {
                Reply::Now(answer) => answer,
                Reply::Never => continue,
                Reply::Later(job) => {
                    // The thread is there as long as the device is.
                    let _ = self.jobs.send(job);
                    continue;
                }
                Reply::NewContext(context) => {
                    let place = state.mailbox.open(&mut state.bars, context);
                    Firmware::new_context(context, &place)
                }
                Reply::EndedContext(context, answer) => {
                    state.mailbox.close(context);
                    answer
                }
                Reply::Sleep(asleep, answer) => {
                    state.bars.set_word(self.settings.model.layout.psp.wait_mode, u32::from(asleep));
                    answer
                }
            };
            self.answer(state, channel, Message { payload: answer, ..message });
        }
    }

    fn answer(&self, state: &mut State, channel: usize, message: Message) {
        self.journal.answer(channel, message.opcode, message.id, &message.payload);
        if state.mailbox.send(&mut state.bars, channel, message) {
            self.interrupt(state, channel);
        }
    }

    fn interrupt(&self, state: &mut State, vector: usize) {
        self.journal.interrupt(vector);
        match state.interrupts.get_mut(vector) {
            // Adds one to the descriptor's count, at which QEMU injects an interrupt.
            Some(Some(file)) => {
                let _ = file.write_all(&1_u64.to_ne_bytes());
            }
            _ => self.journal.note(format!("interrupt vector {vector} is not set up")),
        }
    }

    fn asynchronous_error(&self) {
        let mut state = self.state.lock();
        match state.firmware.asynchronous_error(&self.space) {
            Some(message) => self.answer(&mut state, MANAGEMENT, message),
            None => self.journal.note("an asynchronous error, and no buffer for it".into()),
        }
    }

    fn run(&self, array: &mut Array, job: &Job) {
        if !self.state.lock().firmware.is_current(job) {
            return;
        }
        let around = JobEnvironment { space: &self.space, faults: &self.settings.faults, journal: &self.journal };
        let (ran, charged) = execution::run(array, job, &around, || self.asynchronous_error());
        let mut state = self.state.lock();
        if let Some(context) = state.firmware.context(job) {
            // Rejected only if nothing is to be charged.
            let _ = state.firmware.npu.submit_encoded(context, &charged, 0);
        }
        if ran == JobResult::Lost {
            state.mailbox.close_all();
        }
        // Its context may have been given up meanwhile.
        if !state.firmware.is_current(job) {
            return;
        }
        if let Some(payload) = state.firmware.finish(job, &ran) {
            self.answer(&mut state, job.channel, Message { id: job.id, opcode: job.opcode, payload });
        }
    }
}

/// The array's thread. A context with a command that never signals stays where it is; the others continue.
fn work(mut array: Array, jobs: &Receiver<Job>, device: &Weak<Device>) {
    while let Ok(job) = jobs.recv() {
        let Some(device) = device.upgrade() else { return };
        device.run(&mut array, &job);
    }
}

#[cfg(test)]
mod tests;
