//! Superblocks: the newer of two counts, and what is wrong with one is told by name.

mod common;

use common::LogFile;
use uncopy_log_record::superblock::PLACES;
use uncopy_log_record::*;

#[test]
fn the_newer_of_two_counts() {
    let mut log = LogFile::new(2, 4);
    for turn in 1..5 {
        log.superblock = log.superblock.beat(100 + turn);
        log.write_superblock();
        let found = Superblock::find(&log.file).unwrap();
        assert_eq!(found, log.superblock);
        assert_eq!((found.turn, found.heartbeat), (turn, 100 + turn));
    }
}

#[test]
fn the_older_stands_while_the_newer_is_damaged() {
    let mut log = LogFile::new(2, 4);
    let older = log.superblock;
    log.superblock = older.beat(9);
    log.write_superblock();
    log.file[log.superblock.place() as usize + 100] ^= 4;
    assert_eq!(Superblock::find(&log.file), Ok(older));
}

#[test]
fn every_damaged_byte_of_a_superblock_is_noticed() {
    let log = LogFile::new(2, 4);
    for at in 0..SECTOR {
        let mut file = log.file.clone();
        file[at] ^= 0x10;
        assert!(Superblock::find(&file).is_err(), "byte {at}");
    }
}

#[test]
fn what_is_wrong_is_told_by_name() {
    let file = LogFile::new(2, 4).file;
    let found = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut file = file.clone();
        change(&mut file);
        Superblock::find(&file).unwrap_err()
    };
    assert_eq!(found(&|file| file.fill(0)), Unusable::Empty);
    assert_eq!(found(&|file| file[..9].copy_from_slice(b"#!/bin/sh")), Unusable::NotALog);
    assert_eq!(found(&|file| file[60] ^= 1), Unusable::Damaged);
    let is = file.len() as u64;
    assert_eq!(
        found(&|file| file.truncate(PLACES[1] as usize + SECTOR)),
        Unusable::Truncated { is: PLACES[1] + SECTOR as u64, should: is }
    );
    assert_eq!(found(&Vec::clear), Unusable::Truncated { is: 0, should: SECTOR as u64 });
    let other = found(&|file| {
        file[8] = 77;
        let mut sector = file[..SECTOR].to_vec();
        sector[12..16].fill(0);
        let sum = crc32c::crc32c(&sector);
        file[12..16].copy_from_slice(&sum.to_le_bytes());
    });
    assert_eq!(other, Unusable::OtherVersion { version: 77 });
    assert!(other.to_string().contains("version 77"), "{other}");
}

#[test]
fn where_a_log_comes_from_is_told() {
    let superblock = LogFile::new(2, 4).superblock;
    let here = Here { host: [1; 16], filesystem: [2; 16], boot: [3; 16] };
    assert_eq!(superblock.origin(&here), Origin::ThisBoot);
    assert_eq!(superblock.origin(&Here { boot: [9; 16], ..here }), Origin::EarlierBoot);
    assert_eq!(superblock.origin(&Here { host: [9; 16], ..here }), Origin::OtherHost);
    let elsewhere = Here { filesystem: [9; 16], host: [9; 16], ..here };
    assert_eq!(superblock.origin(&elsewhere), Origin::OtherFileSystem);
    let next = superblock.succeed(&Here { boot: [9; 16], ..here }, 70);
    assert_eq!((next.epoch, next.turn, next.boot), (2, 1, [9; 16]));
    let adopted = superblock.adopt(&Here { boot: [9; 16], ..here }, 70);
    assert_eq!((adopted.epoch, adopted.boot, adopted.recovering), (1, [9; 16], true));
    assert!(!adopted.succeed(&here, 80).recovering);
}
