//! Packing dispatches into the chain, neighbours with one PDI as one.

use super::{Run, Stop};
use crate::artifact::KernelArtifact;
use crate::backend::chain::{Packet, Runs};
use crate::backend::joined::{JoinedList, Neighbours, Part, Room, SharedJoined};
use crate::backend::objects::{buffer_range, kernel};
use crate::backend::pace::Pace;
use crate::backend::stream::Stream;
use crate::backend::{DeviceBackend, LoadedKernel};
use crate::command_list::{BufferRef, Command};
use crate::context_planner::Residence;
use crate::device::chain_command_bytes;
use crate::error::DeviceError;
use crate::executable::Executable;
use crate::format::extent::Traffic;
use crate::loaded_pdi::LoadedPdi;
use crate::submission_queue::InFlight;
use std::ops::Range;
use std::sync::Arc;

impl<'a, B: DeviceBackend> Run<'a, B> {
    /// Puts dispatches with the same PDI next to each other, where nothing but others of the same context is between them. `next` is the
    /// command behind the next barrier.
    pub(super) fn sort_by_pdi(&self, submission: &'a InFlight, order: &mut [usize], next: usize) {
        if order.len() < 2 || submission.list().is_none_or(|list| list.is_apart()) {
            return;
        }
        // Context and PDI of a dispatch that can be joined.
        let joinable = |command: usize| match submission.commands().get(command)? {
            Command::Dispatch { executable, .. } => {
                let kernel = kernel(self.device, command, executable).ok()?;
                kernel.joinable()?;
                let at = self.schedule.planner.locate(kernel.pdi.number)?;
                Some((at.context, kernel.pdi.number))
            }
            _ => None,
        };
        let mut before = self.neighbours.pdi();
        let after = joinable(next).map(|(_, pdi)| pdi);
        let context = |command: &usize| joinable(*command).map(|(context, _)| context);
        for neighbours in order.chunk_by_mut(|a, b| context(a).is_some() && context(a) == context(b)) {
            let mut pdis: Vec<usize> = Vec::new();
            for (_, pdi) in neighbours.iter().filter_map(|command| joinable(*command)) {
                if !pdis.contains(&pdi) {
                    pdis.push(pdi);
                }
            }
            // Put the PDI of the previous group first, and that of the next group last.
            pdis.sort_by_key(|pdi| (Some(*pdi) != before, Some(*pdi) == after));
            neighbours.sort_by_key(|command| {
                joinable(*command).and_then(|(_, pdi)| pdis.iter().position(|other| *other == pdi))
            });
            before = pdis.last().copied();
        }
    }

    /// Adds a dispatch: to its neighbours, which get into the chain together, or to the chain.
    pub(super) fn pack(
        &mut self,
        index: usize,
        submission: &'a InFlight,
        command: usize,
        executable: &'a Arc<dyn Executable>,
        (bindings, outputs): (&'a [BufferRef], usize),
    ) -> Result<(), Stop> {
        let device = self.device;
        let kernel: &'a LoadedKernel<B> = kernel(device, command, executable).map_err(Self::stop(index))?;
        let made = self.made_stream(index, submission, command, kernel, (bindings, outputs))?;
        let mut arguments = Vec::with_capacity(bindings.len());
        let mut all = 0;
        for reference in bindings {
            let range = buffer_range(device, submission.bindings(), command, reference).map_err(Self::stop(index))?;
            if range.length > B::ARGUMENT_BYTES {
                return Err(Self::stop(index)(DeviceError::InvalidArgument(format!(
                    "command {command}: an argument of {} bytes; a packet can name {} at most",
                    range.length,
                    B::ARGUMENT_BYTES
                ))));
            }
            all += range.length as u64;
            arguments.push(range.device_range());
        }
        let (made, touched) = made.map_or((None, None), |(artifact, touched)| (Some(artifact), touched));
        let is_apart = submission.list().is_none_or(|list| list.is_apart());
        let is_known = made.is_none() || touched.is_some();
        let moved = kernel.joinable();
        let joinable = moved.is_some() && !is_apart && is_known;
        let traffic = match &touched {
            Some(touched) => touched.traffic,
            // What is moved several times counts as often: a joined dispatch has no other limit of its time.
            None => moved
                .map_or(Traffic { bytes: all, pieces: 0 }, |moved| Traffic { bytes: moved.bytes.max(all), ..moved }),
        };
        let stream = made.as_ref().unwrap_or(&kernel.artifact);
        let expected_ns = device.state().arch.cost.slow_dispatch_ns(stream.charged_operations(), traffic);
        let part = Part { command, kernel, bindings, arguments, outputs, made, touched, expected_ns, joinable };
        let room = Room::new(&device.state().limits, device.array().pace.most(B::CHAIN_NS));
        if let Some(part) = self.neighbours.add(index, part, &room) {
            self.join_neighbours()?;
            self.neighbours.add(index, part, &room);
        }
        Ok(())
    }

    /// Puts the neighbours so far into the chain: as one dispatch, or as they are when they do not go together.
    pub(super) fn join_neighbours(&mut self) -> Result<(), Stop> {
        let mut neighbours = std::mem::take(&mut self.neighbours);
        let result = match self.joined(&neighbours) {
            Ok(Some(joined)) => self.push_joined(&neighbours, joined),
            Ok(None) => neighbours.parts.drain(..).try_for_each(|part| self.push_part(neighbours.submission, part)),
            Err(stop) => Err(stop),
        };
        neighbours.clear();
        self.neighbours = neighbours;
        result
    }

    /// What neighbours become. None when they stay as they are.
    fn joined(&mut self, neighbours: &Neighbours<'a, B>) -> Result<Option<SharedJoined<B::Heap>>, Stop> {
        if neighbours.parts.len() < 2 {
            return Ok(None);
        }
        let list = self.batch.get(neighbours.submission).and_then(InFlight::list);
        let known = list.and_then(|list| list.derived(JoinedList::<B::Heap>::default));
        if !neighbours.has_made() {
            return Ok(known.and_then(|known| known.of(self.device, neighbours)));
        }
        if let Some(renewed) = known.and_then(|known| known.renewed(self.device, neighbours)) {
            return Ok(Some(renewed));
        }
        let Some(joined) = neighbours.join() else { return Ok(None) };
        match self.upload(neighbours.submission, &joined.stream) {
            Ok(stream) => {
                let joined = Arc::new(joined.with(Arc::new(stream)));
                if let Some(known) = known {
                    known.keep(neighbours, &joined);
                }
                Ok(Some(joined))
            }
            // Apart they may fit, and reach their arguments: together one may be too far into its buffer.
            Err(Stop { cause: DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_), .. }) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Puts the stream of one dispatch into the device heap.
    fn upload(&mut self, index: usize, artifact: &KernelArtifact) -> Result<Stream<B::Heap>, Stop> {
        let stream = match Stream::load(self.device, artifact) {
            // Streams of chains under way make room, and those that are kept for the next run.
            Err(DeviceError::OutOfMemory { .. }) => {
                self.start_chain()?;
                self.drain()?;
                let list = self.batch.get(index).and_then(InFlight::list);
                if let Some(known) = list.and_then(|list| list.derived(JoinedList::<B::Heap>::default)) {
                    known.release();
                }
                Stream::load(self.device, artifact)
            }
            result => result,
        };
        stream.map_err(Self::stop(index))
    }

    fn push_part(&mut self, submission: usize, part: Part<'a, B>) -> Result<(), Stop> {
        let Part { command, kernel, arguments, outputs, made, touched, expected_ns, .. } = part;
        let runs = match made {
            None => Runs::Own,
            Some(artifact) => Runs::Made(Box::new(self.upload(submission, &artifact)?)),
        };
        let slot = self.make_room(submission, &kernel.pdi, arguments.len(), expected_ns)?;
        self.scratch.chain.push(Packet { submission, command, slot, arguments, outputs, touched, runs });
        Ok(())
    }

    fn push_joined(&mut self, neighbours: &Neighbours<'a, B>, joined: SharedJoined<B::Heap>) -> Result<(), Stop> {
        let (device, submission) = (self.device, neighbours.submission);
        let Some(Part { command, kernel, .. }) = neighbours.parts.first() else { return Ok(()) };
        let (command, table) = (*command, self.batch[submission].bindings());
        let address = |reference| buffer_range(device, table, command, reference).map(|range| range.device_range());
        let arguments: Result<Vec<Range<u64>>, _> = joined.bindings.iter().map(address).collect();
        let arguments = arguments.map_err(Self::stop(submission))?;
        let slot = self.make_room(submission, &kernel.pdi, arguments.len(), neighbours.expected_ns())?;
        let (outputs, touched) = (joined.outputs, Some(neighbours.touched()));
        let runs = Runs::Joined(joined);
        self.scratch.chain.push(Packet { submission, command, slot, arguments, outputs, touched, runs });
        Ok(())
    }

    /// Makes room in the chain for a dispatch with so many arguments, after starting the chain when it does not fit. Returns where its PDI
    /// is in the context.
    fn make_room(
        &mut self,
        submission: usize,
        pdi: &Arc<LoadedPdi<B::Heap>>,
        arguments: usize,
        expected_ns: u64,
    ) -> Result<usize, Stop> {
        if let Some(reason) = Pace::rejects(expected_ns, B::CHAIN_NS) {
            return Err(Self::stop(submission)(DeviceError::Unsupported(reason)));
        }
        let limits = &self.device.state().limits;
        let Residence { context, slot } = match self.schedule.planner.locate(pdi.number) {
            Some(at) => at,
            None => {
                self.start_chain()?;
                self.drain()?;
                let found = self.plan(|schedule, contexts| schedule.planner.require(contexts, pdi));
                found.map_err(Self::stop(submission))?
            }
        };
        let bytes = chain_command_bytes(arguments);
        let fits = self.context.is_none_or(|c| c == context)
            && self.scratch.chain.len() < limits.commands_per_chain
            && self.chain_bytes + bytes <= limits.chain_buffer_bytes
            && (self.chain_ns == 0
                || self.device.array().pace.fits(self.chain_ns.saturating_add(expected_ns), B::CHAIN_NS));
        if !fits {
            self.start_chain()?;
        }
        self.context = Some(context);
        self.chain_bytes += bytes;
        self.chain_ns = self.chain_ns.saturating_add(expected_ns);
        Ok(slot)
    }
}
