/** Headless Chromium from Debian, controlled by playwright-core, which contains no browser. */
import { type Browser, type Page, chromium } from 'playwright-core';
import { ensureDebianProgram } from '../rig/debian.ts';

/** Host name whose pages over plain HTTP have no secure context, unlike pages of a loopback address. */
export const PLAIN_HOST = 'recorder.example';

export function openBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: ensureDebianProgram('chromium'),
    // Chromium's sandbox needs privileges that test machines lack. The browser opens only pages of the tests, so it
    // runs without a sandbox.
    args: [
      '--no-sandbox',
      '--disable-dev-shm-usage',
      '--disable-gpu',
      `--host-resolver-rules=MAP ${PLAIN_HOST} 127.0.0.1`,
    ],
  });
}

export interface Complaints {
  /** Errors and warnings of the console, exceptions, refused or failed requests, and violations of the CSP. */
  readonly all: readonly string[];
  /** Discards the collected problems. Call this function after a test has caused errors on purpose. */
  forget(): void;
}

/** Collects all problems that a browser reports about a page, from its first byte. */
export async function collectComplaints(page: Page): Promise<Complaints> {
  const all: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning')
      all.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => all.push(`exception: ${error.message}`));
  page.on('requestfailed', (request) => {
    const reason = request.failure()?.errorText ?? '';
    // Leaving a view aborts its pending requests.
    if (reason !== 'net::ERR_ABORTED') all.push(`request failed: ${request.url()} ${reason}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) all.push(`${response.status()} ${response.url()}`);
  });
  await page.exposeFunction('tellViolation', (text: string) => void all.push(`CSP: ${text}`));
  await page.addInitScript(`addEventListener('securitypolicyviolation', (event) =>
    tellViolation(event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sourceFile + ':' + event.lineNumber))`);
  return {
    all,
    forget() {
      all.length = 0;
    },
  };
}
