import { describe, expect, it } from 'vitest';
import { capacityOf, readMemory, type Memory } from '../../src/memory/capacity.ts';

const MIB = 1024 ** 2;
const memory = (machine: number, container: number | undefined, heap: number): Memory => ({
  machineBytes: machine * MIB,
  containerBytes: container === undefined ? undefined : container * MIB,
  heapBytes: heap * MIB,
});

describe('the capacity of a process', () => {
  it.each([
    ['the container is the limit', memory(65_536, 512, 4096), 1310],
    ['the machine is', memory(1024, undefined, 4096), 2621],
    ['the heap is', memory(65_536, 4096, 200), 1024],
    ['there is more than anybody needs', memory(65_536, undefined, 16_384), 20_000],
    ['there is next to nothing', memory(64, 32, 32), 300],
  ])('when %s', (_when, given, requests) => {
    const capacity = capacityOf(given);
    expect(capacity.requests).toBe(requests);
    expect(capacity.requestsPerUser).toBe(Math.floor(requests / 3));
    expect(capacity.bytesPerUser).toBeGreaterThan(0);
    expect(capacity.headBytes).toBeGreaterThan(0);
  });

  it('is that of this process', () => {
    const here = readMemory();
    expect(here.machineBytes).toBeGreaterThan(64 * MIB);
    expect(here.heapBytes).toBeGreaterThan(16 * MIB);
    expect(here.containerBytes ?? here.machineBytes).toBeLessThanOrEqual(here.machineBytes);
  });
});
