import { describe, expect, it } from 'vitest';
import type { RequestClass } from '../../../src/kube/interactive.ts';
import { isShownByBrowser, refusePages } from '../../../src/proxy/gate/browser-pages.ts';

const NAVIGATES = ['Sec-Fetch-Mode', 'navigate', 'Sec-Fetch-Dest', 'document'];

function look(
  rawHeaders: readonly string[],
  requestClass: RequestClass = 'podProxy',
  pages: 'refuse' | 'sandbox' = 'refuse',
): () => void {
  return () => refusePages({ rawHeaders, shown: isShownByBrowser(rawHeaders), requestClass }, pages);
}

describe('a service worker', () => {
  it.each([
    ['by its own header', ['Service-Worker', 'script']],
    ['by its use', ['Sec-Fetch-Dest', 'serviceworker']],
    ['by its use in any case', ['Sec-Fetch-Dest', 'ServiceWorker']],
    ['by both', ['Service-Worker', 'script', 'Sec-Fetch-Dest', 'serviceworker']],
  ])('is refused, %s, on each path', (_, rawHeaders) => {
    expect(look(rawHeaders)).toThrow('service workers are not allowed');
    expect(look(rawHeaders, 'plain')).toThrow('service workers are not allowed');
    expect(look(rawHeaders, 'podProxy', 'sandbox')).toThrow('service workers are not allowed');
  });
});

describe('a page of a program', () => {
  it.each<RequestClass>(['podProxy', 'serviceProxy', 'nodeProxy', 'otherProxy', 'unknownSubresource'])(
    'is refused (%s)',
    (requestClass) => {
      expect(look(NAVIGATES, requestClass)).toThrow('would act as you');
      expect(look(['Sec-Fetch-Mode', 'Navigate'], requestClass)).toThrow('would act as you');
      for (const use of ['iframe', 'script', 'image', 'embed', 'worker'])
        expect(look(['Sec-Fetch-Dest', use], requestClass)).toThrow('would act as you');
    },
  );

  it('does not include fetches of a permitted script, responses of the API server, or requests of other clients', () => {
    for (const use of ['empty', 'websocket'])
      expect(look(['Sec-Fetch-Mode', 'cors', 'Sec-Fetch-Dest', use])).not.toThrow();
    expect(look(NAVIGATES, 'plain')).not.toThrow();
    expect(look(NAVIGATES, 'podProxy', 'sandbox')).not.toThrow();
    expect(look(['User-Agent', 'kubectl/1.33'])).not.toThrow();
    // behind `kubectl proxy`, the page has the origin of that proxy, so the gateway allows it
    expect(look([...NAVIGATES, 'X-Forwarded-For', '127.0.0.1'])).not.toThrow();
    expect(look([...NAVIGATES, 'X-Forwarded-For', '127.0.0.1, 10.0.0.1'])).toThrow('would act as you');
  });
});
