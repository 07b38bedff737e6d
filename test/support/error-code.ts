import { TailcastError } from '../../src/errors.ts';

/** @returns the code of the error, the text of an error without a code, or undefined if `work` succeeds */
export async function codeOf(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    return error instanceof TailcastError ? error.code : String(error);
  }
}
