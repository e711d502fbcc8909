import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { inflateRawSync } from 'node:zlib';

/**
 * Unpacks a zip file as far as packages of functions need it (stored or deflated, below 4 GB).
 *
 * @returns the names of what was in it.
 */
export async function unzip(file: string, folder: string): Promise<string[]> {
  const zip = await readFile(file);
  const end = zip.lastIndexOf(Buffer.from('PK\x05\x06'));
  const names: string[] = [];
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    const nameLength = zip.readUInt16LE(at + 28);
    const name = zip.toString('utf8', at + 46, at + 46 + nameLength);
    const local = zip.readUInt32LE(at + 42);
    const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
    const packed = zip.subarray(start, start + zip.readUInt32LE(at + 20));
    const isDeflated = zip.readUInt16LE(at + 10) === 8;
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), isDeflated ? inflateRawSync(packed) : packed);
    names.push(name);
    at += 46 + nameLength + zip.readUInt16LE(at + 30) + zip.readUInt16LE(at + 32);
  }
  return names;
}
