/** All cases in the order in which they run. Every case must be in this list. */
import type { BenchCase } from '../harness/case.ts';
import { EXEC_CASES } from './exec.ts';
import { HTTP_CASES } from './http.ts';
import { KUBECTL_CASES } from './kubectl.ts';
import { REAL_CASES } from './real.ts';
import { UNDER_LOAD_CASES } from './under-load.ts';

export const CASES: readonly BenchCase[] = [
  ...HTTP_CASES,
  ...EXEC_CASES,
  ...UNDER_LOAD_CASES,
  ...KUBECTL_CASES,
  ...REAL_CASES,
];
