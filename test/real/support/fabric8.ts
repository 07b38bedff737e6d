/** A Java program with fabric8's client, built with Maven into the cache of the other peers. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureCached, runOrExplain } from './cached-client.ts';

const folder = fileURLToPath(new URL('../peers/clients/fabric8', import.meta.url));

export interface Fabric8Client {
  readonly program: 'java';
  /** Arguments of `java` that precede those of the client. */
  readonly args: readonly string[];
}

/** @throws Error with Maven's output if the build fails */
export async function ensureFabric8Client(): Promise<Fabric8Client> {
  const pom = join(folder, 'pom.xml');
  const built = await ensureCached({
    name: 'fabric8',
    inputs: [pom, join(folder, 'src', 'main', 'java', 'Client.java')],
    make: (made) =>
      runOrExplain(
        'mvn',
        ['-q', '-B', `-f${pom}`, `-Doutput=${made}`, 'compile'],
        'fabric8 could not be built',
      ),
  });
  const path = [join(built, 'classes'), join(built, 'lib', '*')].join(':');
  // The optimising compiler would only delay a program that runs for about a second.
  return { program: 'java', args: ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', path, 'Client'] };
}
