//! Scenes are reproducible and complete.

use sim::clients::diary::Word;
use sim::replay::scene::{CLIENTS, plain, play};

#[test]
fn scene_is_reproducible_and_covers_all_history_entries() {
    let play = || play(8, 400, "version=0".into()).expect("nothing goes wrong");
    let history = play();
    assert_eq!(plain(&history), plain(&play()));
    let count = |wanted: fn(&Word) -> bool| history.iter().filter(|(_, word)| wanted(word)).count();
    let asked = count(|word| matches!(word, Word::Asked(_)));
    assert_eq!(count(|word| matches!(word, Word::Answered(_))), asked);
    assert!(asked > 800, "{asked}");
    assert!(count(|word| matches!(word, Word::Answered(Err(_)))) > 50);
    assert!(count(|word| matches!(word, Word::Event(_))) > 20);
    assert!(count(|word| matches!(word, Word::Left)) > 0);
    assert!(history.iter().all(|(client, _)| (1..=CLIENTS).contains(&client.0)));
}
